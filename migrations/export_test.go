package migrations

import (
	"context"
	"database/sql"
	"embed"
)

// Files are the migrations.
func Files() embed.FS { return files }

// UpTo is Up for one set and no further than a version.
func UpTo(ctx context.Context, url string, set Set, version int64) error {
	return exclusively(ctx, url, func(string) {}, func(db *sql.DB) error {
		provider, err := newProvider(db, set)
		if err != nil {
			return err
		}
		_, err = provider.UpTo(ctx, version)
		return err
	})
}
