package app

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/txsvc/txsvc/migrations"
)

type migrateCommand struct {
	Up     migrateUp     `cmd:"" help:"Apply what is missing."`
	Down   migrateDown   `cmd:"" help:"Take the newest migration back. Its data is lost."`
	Status migrateStatus `cmd:"" help:"List the migrations."`
}

// exampleSet adds the tables of the shipped kinds.
type exampleSet struct {
	database
	Example bool `env:"TXSVC_MIGRATE_EXAMPLE" help:"Also the tables of the shipped kinds: orders, order_items, payments."`
}

func (e exampleSet) sets() []migrations.Set {
	if e.Example {
		return []migrations.Set{migrations.Core, migrations.Example}
	}
	return []migrations.Set{migrations.Core}
}

type migrateUp struct{ exampleSet }

// Run applies the missing migrations.
func (c *migrateUp) Run(ctx context.Context, out output) error {
	if err := c.validate(); err != nil {
		return err
	}
	if err := migrations.UpTelling(ctx, c.DatabaseURL, out.tell, c.sets()...); err != nil {
		return err
	}
	return (&migrateStatus{c.exampleSet}).Run(ctx, out)
}

type migrateDown struct{ exampleSet }

// Run takes back the newest migration: of the example set with --example, else of the core.
func (c *migrateDown) Run(ctx context.Context, out output) error {
	if err := c.validate(); err != nil {
		return err
	}
	sets := c.sets()
	if err := migrations.Down(ctx, c.DatabaseURL, out.tell, sets[len(sets)-1]); err != nil {
		return err
	}
	return (&migrateStatus{c.exampleSet}).Run(ctx, out)
}

type migrateStatus struct{ exampleSet }

// Run lists the migrations.
func (c *migrateStatus) Run(ctx context.Context, out output) error {
	if err := c.validate(); err != nil {
		return err
	}
	list, err := migrations.List(ctx, c.DatabaseURL, c.sets()...)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
	for _, m := range list {
		state := "missing"
		if m.Applied {
			state = "applied"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", m.Set, m.Version, m.File, state)
	}
	return w.Flush()
}
