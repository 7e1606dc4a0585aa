package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/localtx/task"
	"github.com/txsvc/txsvc/internal/txn"
)

type checkConfigCommand struct {
	Config   string     `env:"TXSVC_CONFIG" placeholder:"FILE" help:"YAML file of kinds and topics."`
	File     string     `arg:"" optional:"" help:"The file, in place of --config."`
	Database onDatabase `help:"Let the database read each statement, without running any: TXSVC_DATABASE_URL, or --database=URL."`
	database
	Dir string `default:".txsvc" help:"With --database, and without an address: the directory of a running txsvc dev."`
}

// onDatabase is a flag that may have a value.
type onDatabase struct {
	asked bool
	url   string
}

// IsBool lets the flag stand alone.
func (onDatabase) IsBool() bool { return true }

// Decode reads the flag.
func (d *onDatabase) Decode(ctx *kong.DecodeContext) error {
	d.asked = true
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		return nil
	}
	return ctx.Scan.PopValueInto("URL", &d.url)
}

// Run reads the file as serve does, lists its kinds, and names the parts that it did not check.
func (c *checkConfigCommand) Run(ctx context.Context, code Code, out output) error {
	if c.File != "" {
		c.Config = c.File
	}
	if c.Config == "" {
		return errors.New("no file given: name it, or set TXSVC_CONFIG")
	}
	file, err := config.Load(c.Config, code.Selectors)
	if err != nil {
		return err
	}
	kinds, programs, err := code.kinds(file)
	if err != nil {
		return err
	}
	for _, odd := range file.Warnings {
		fmt.Fprintf(out.stderr, "warning: %s:%s\n", file.Name, odd)
	}
	if c.Database.asked {
		if err := c.prepare(ctx, out, file, programs); err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tTOPIC\tLOCAL\tSELECTOR\tTIMEOUT\tPATH")
	for _, k := range kinds {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", k.Name, k.Topic, k.Local, k.Selector.Name(), k.Timeout, orDash(k.Path))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out.stdout, "not checked: "+strings.Join(c.unchecked(kinds), ", "))
	return err
}

// prepare has the database read the statements of all kinds, and returns all that it says against them.
func (c *checkConfigCommand) prepare(ctx context.Context, out output, file *config.File, programs map[string]task.Program) error {
	if c.Database.url != "" {
		c.DatabaseURL = c.Database.url
	}
	if err := (ofDev{databaseURL: &c.DatabaseURL}).complete(ctx, out, c.Dir); err != nil {
		return err
	}
	if err := c.validate(); err != nil {
		return err
	}
	db, err := openDatabase(ctx, c.DatabaseURL, txn.DefaultTiming(), slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer db.Close()
	var problems []config.Problem
	for name, program := range programs {
		statements, ok := program.(task.SQL)
		if !ok {
			continue
		}
		mistakes, err := task.Prepare(ctx, db, statements)
		if err != nil {
			return fmt.Errorf("kind %s: %w", name, err)
		}
		for _, m := range mistakes {
			at := file.Kinds[name].Local.PlaceInSQL(m.Statement, m.Character)
			problems = append(problems, config.Problem{Line: at.Line, Column: at.Column, Path: at.Path, Message: m.Message})
		}
	}
	return file.Errors(problems)
}

// unchecked names the parts in which there may still be a mistake.
func (c *checkConfigCommand) unchecked(kinds []*txn.Kind) []string {
	what := []string{"whether the topics exist"}
	sql, handlers := 0, 0
	for _, k := range kinds {
		switch k.Local {
		case txn.LocalSQL:
			sql++
		case txn.LocalHandler:
			handlers++
		}
	}
	if handlers > 0 {
		what = append(what, "handlers in Go")
	}
	if sql > 0 && !c.Database.asked {
		what = append(what, "whether the database takes the statements (--database asks it)")
	}
	if sql > 0 && c.Database.asked {
		what = append(what, "permissions, and, of statements that do not query or change rows, names")
	}
	return what
}
