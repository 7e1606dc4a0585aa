package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// packets loses packets of TCP connections by nftables, so that nothing acknowledges them: the kernel's own timeouts have to
// notice. Only root can.

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

// losePackets drops what goes to the port, what comes from it, or both, until the table of the fault is dropped.
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

// findPackets lets them through again.
func findPackets(ctx context.Context, table string) error {
	return nft(ctx, "delete table inet "+table+"\n")
}

var tablePattern = regexp.MustCompile(`table inet (` + tablePrefix + `(\d+)\w*)`)

// findStalePackets removes the rules of runs whose process is gone, and tells whether rules can be had at all.
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

// dropOwnTables is for the end of a run that was interrupted.
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
