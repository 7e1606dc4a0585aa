package main

import (
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/txsvc/txsvc/internal/config"
)

type checkConfigCommand struct {
	Config string `env:"TXSVC_CONFIG" placeholder:"FILE" help:"YAML file of kinds and topics."`
	File   string `arg:"" optional:"" help:"The file, in place of --config."`
}

// Run reads the file as serve would, and lists its kinds.
func (c *checkConfigCommand) Run(out output) error {
	if c.File != "" {
		c.Config = c.File
	}
	if c.Config == "" {
		return errors.New("no file given: name it, or set TXSVC_CONFIG")
	}
	file, err := config.Load(c.Config, selectors)
	if err != nil {
		return err
	}
	kinds, _, err := buildKinds(file)
	if err != nil {
		return err
	}
	for _, odd := range file.Warnings {
		fmt.Fprintf(out.stderr, "warning: %s:%s\n", file.Name, odd)
	}
	w := tabwriter.NewWriter(out.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KIND\tTOPIC\tLOCAL\tSELECTOR\tTIMEOUT\tPATH")
	for _, k := range kinds {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", k.Name, k.Topic, k.Local, k.Selector.Name(), k.Timeout, orDash(k.Path))
	}
	return w.Flush()
}
