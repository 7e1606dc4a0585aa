package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// packets drops packets of TCP connections with nftables, so that nothing acknowledges them and the kernel's own
// timeouts have to notice. It needs root.

const tablePrefix = "txsvc_faults_"

func tableName() string { return fmt.Sprint(tablePrefix, os.Getpid()) }

func nft(ctx context.Context, script string) error {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

// losePackets drops packets to the port, from it, or both, until the fault's table is deleted.
func losePackets(ctx context.Context, table, port string, requests, replies bool) error {
	script := fmt.Sprintf("table inet %s {\nchain lose {\ntype filter hook input priority 0; policy accept;\n", table)
	if requests {
		script += fmt.Sprintf("iifname lo tcp dport %s drop\n", port)
	}
	if replies {
		script += fmt.Sprintf("iifname lo tcp sport %s drop\n", port)
	}
	return nft(ctx, script+"}\n}\n")
}

// findPackets lets packets through again.
func findPackets(ctx context.Context, table string) error {
	return nft(ctx, "delete table inet "+table+"\n")
}

var tablePattern = regexp.MustCompile(`table inet (` + tablePrefix + `(\d+)\w*)`)

// findStalePackets removes the rules of runs whose process is gone. An error means that this machine allows no rules.
func findStalePackets(ctx context.Context) error {
	out, err := exec.CommandContext(ctx, "nft", "list", "tables").CombinedOutput()
	if err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	for _, m := range tablePattern.FindAllStringSubmatch(string(out), -1) {
		if isStale(m[2], m[1]) {
			if err := findPackets(ctx, m[1]); err != nil {
				return err
			}
		}
	}
	probe := tableName() + "_probe"
	if err := losePackets(ctx, probe, "1", true, true); err != nil {
		return err
	}
	return findPackets(ctx, probe)
}

// dropOwnTables removes this run's rules after an interrupt.
func dropOwnTables(ctx context.Context) {
	out, err := exec.CommandContext(ctx, "nft", "list", "tables").CombinedOutput()
	if err != nil {
		return
	}
	for _, m := range tablePattern.FindAllStringSubmatch(string(out), -1) {
		if m[2] == fmt.Sprint(os.Getpid()) {
			_ = findPackets(ctx, m[1])
		}
	}
}
