package devstack_test

import (
	"testing"

	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// Older brokers start too, with today's Java, and take messages.
func TestOlderVersions(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"4.9.7", "5.1.4"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := startStack(t, devstack.Options{Dir: tempDir(t), RocketMQVersion: version, JavaOptions: []string{"-XX:TieredStopAtLevel=1"}})
			mqadmin(t, s, "updateTopic", "-c", "DefaultCluster", "-t", "old", "-r", "4", "-w", "4")
			send(t, s, "-t", "old", "-p", "body")
		})
	}
}
