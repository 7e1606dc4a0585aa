package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// The service's own schema is in nobody's search path: a table that somebody creates without naming a schema would end up
// beside the service's own, and a query that names none would read those. It comes into the path of a user of the same
// name, by "$user", so that user's default in this database is the path without "$user". Sessions of the service take
// care of themselves (localtx).

// StraysError is returned by Up for a database in which somebody's own objects got into the service's schema, where those
// who look for them by their names alone would no longer find them.
type StraysError struct {
	Moves []string // the statements that move them to the schema public
}

// Error names the statements.
func (e *StraysError) Error() string {
	return "the schema txsvc is the service's own, and holds what is not: run\n  " + strings.Join(e.Moves, ";\n  ") +
		";\nand migrate again. The version before finds them there as well"
}

// MoveStrays moves to the schema public what got into the service's schema because the URL's user has the schema's name, and
// returns the statements that it ran.
func MoveStrays(ctx context.Context, url string) (moves []string, err error) {
	err = exclusively(ctx, url, func(string) {}, func(db *sql.DB) error {
		if moves, err = strays(ctx, db); err != nil {
			return err
		}
		for _, move := range moves {
			if _, err := db.ExecContext(ctx, move); err != nil {
				return fmt.Errorf("%s: %w", move, err)
			}
		}
		return nil
	})
	return moves, err
}

// leavePath takes the schema out of the user's default path, where it came in by the user's name.
func leavePath(ctx context.Context, db *sql.DB) error {
	path, inPath, err := pathWithoutUser(ctx, db)
	if err != nil || !inPath {
		return err
	}
	moves, err := strays(ctx, db)
	if err != nil {
		return err
	}
	if len(moves) > 0 {
		return &StraysError{moves}
	}
	var alter string
	err = db.QueryRowContext(ctx, `SELECT format('ALTER ROLE CURRENT_USER IN DATABASE %I SET search_path = %s', current_database(), $1::text)`, path).Scan(&alter)
	if err == nil {
		_, err = db.ExecContext(ctx, alter)
	}
	if err != nil {
		return fmt.Errorf("taking the schema txsvc out of the user's search path: %w", err)
	}
	return nil
}

// pathWithoutUser returns the session's path without "$user", and whether that brought the service's schema into it. A path
// that the URL sets is somebody's express wish.
func pathWithoutUser(ctx context.Context, db *sql.DB) (path string, inPath bool, err error) {
	err = db.QueryRowContext(ctx, `SELECT coalesce(string_agg(m[1], ', ' ORDER BY n) FILTER (WHERE m[1] NOT IN ('"$user"', '$user')), ''''''),
			current_user = 'txsvc' AND bool_or(m[1] IN ('"$user"', '$user')) AND (SELECT source <> 'client' FROM pg_settings WHERE name = 'search_path')
		FROM regexp_matches(current_setting('search_path'), '("(?:[^"]|"")*"|[^,"\s]+)', 'g') WITH ORDINALITY AS element (m, n)`).Scan(&path, &inPath)
	if err != nil {
		return "", false, fmt.Errorf("reading the search path: %w", err)
	}
	return path, inPath, nil
}

// strays returns the statements that move what is in the service's schema and not the service's, when its user's name
// brought it there.
func strays(ctx context.Context, db *sql.DB) ([]string, error) {
	if _, inPath, err := pathWithoutUser(ctx, db); err != nil || !inPath {
		return nil, err
	}
	own, err := ownNames()
	if err != nil {
		return nil, err
	}
	// Sequences of a table's columns go with it, types of rows and arrays with theirs, and what extensions made with those.
	rows, err := db.QueryContext(ctx, `WITH own AS (SELECT regexp_split_to_table($1, ' ') AS name),
			member AS (SELECT classid, objid FROM pg_depend WHERE deptype IN ('a', 'e', 'i'))
		SELECT format('ALTER TABLE txsvc.%I SET SCHEMA public', relname) FROM pg_class c
			WHERE relnamespace = to_regnamespace('txsvc') AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND relname NOT IN (SELECT name FROM own)
			AND ('pg_class'::regclass, c.oid) NOT IN (SELECT classid, objid FROM member)
		UNION ALL SELECT format('ALTER ROUTINE txsvc.%I(%s) SET SCHEMA public', proname, pg_get_function_identity_arguments(p.oid)) FROM pg_proc p
			WHERE pronamespace = to_regnamespace('txsvc') AND proname NOT IN (SELECT name FROM own)
			AND ('pg_proc'::regclass, p.oid) NOT IN (SELECT classid, objid FROM member)
		UNION ALL SELECT format('ALTER TYPE txsvc.%I SET SCHEMA public', typname) FROM pg_type t
			WHERE typnamespace = to_regnamespace('txsvc') AND typtype IN ('e', 'd') AND typname NOT IN (SELECT name FROM own)
			AND ('pg_type'::regclass, t.oid) NOT IN (SELECT classid, objid FROM member)
		UNION ALL SELECT format('ALTER EXTENSION %I SET SCHEMA public', extname) FROM pg_extension WHERE extnamespace = to_regnamespace('txsvc')`,
		strings.Join(own, " "))
	if err != nil {
		return nil, fmt.Errorf("looking for what is not the service's: %w", err)
	}
	defer rows.Close()
	var moves []string
	for rows.Next() {
		var move string
		if err := rows.Scan(&move); err != nil {
			return nil, fmt.Errorf("looking for what is not the service's: %w", err)
		}
		moves = append(moves, move)
	}
	return moves, rows.Err()
}

var created = regexp.MustCompile(`(?i)\bCREATE (?:OR REPLACE )?(?:UNLOGGED )?(?:TABLE|SEQUENCE|VIEW|FUNCTION|PROCEDURE|TYPE|DOMAIN) (?:IF NOT EXISTS )?txsvc\.(\w+)`)

// ownNames are the names of all that the migrations create in the service's schema.
func ownNames() ([]string, error) {
	var names []string
	for _, set := range []Set{Core, Example} {
		names = append(names, strings.TrimPrefix(set.table(), "txsvc."))
	}
	err := fs.WalkDir(files, string(Core), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := files.ReadFile(path)
		for _, m := range created.FindAllSubmatch(text, -1) {
			names = append(names, string(m[1]))
		}
		return err
	})
	if err != nil || len(names) == 2 {
		return nil, errors.Join(err, errors.New("the migrations create nothing"))
	}
	return names, nil
}
