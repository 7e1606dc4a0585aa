package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/selector"
)

// TestCompose checks docker-compose.yml as Compose itself reads it: it is loaded, what it refers to exists, its
// configurations are accepted by the programs they are for, and nothing is published beyond loopback.
func TestCompose(t *testing.T) {
	t.Parallel()
	options, err := cli.NewProjectOptions([]string{"../../../docker-compose.yml"}, cli.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"postgres", "namesrv", "broker", "topics", "migrate", "txsvc", "prometheus"} {
		if !slices.Contains(project.ServiceNames(), want) {
			t.Errorf("there is no service %s", want)
		}
	}
	for name, service := range project.Services {
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes port %s on %q, want loopback only", name, port.Published, port.HostIP)
			}
		}
		if service.Build != nil {
			if _, err := os.Stat(filepath.Join(service.Build.Context, "Dockerfile")); err != nil {
				t.Errorf("%s is built from nothing: %v", name, err)
			}
		} else if !strings.Contains(service.Image, ":") || strings.HasSuffix(service.Image, ":latest") {
			t.Errorf("%s: the image %s has no fixed version", name, service.Image)
		}
	}
	checkKinds(t, project)
	prometheus := filepath.Join(t.TempDir(), "prometheus.yml")
	if err := os.WriteFile(prometheus, []byte(project.Configs["prometheus"].Content), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", "check", "config", prometheus).CombinedOutput(); err != nil {
		t.Errorf("promtool check config: %v\n%s", err, out)
	}
	if broker := project.Configs["broker"].Content; !strings.Contains(broker, "autoCreateTopicEnable = false") {
		t.Error("the broker creates topics by itself")
	}
}

// checkKinds: the kinds that are mounted are a configuration, with what they refer to beside them, and their topics are
// created.
func checkKinds(t *testing.T, project *types.Project) {
	t.Helper()
	dir := t.TempDir()
	for _, mount := range project.Services["txsvc"].Configs {
		text, err := os.ReadFile(project.Configs[mount.Source].File)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, mount.Target)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file, err := config.Load(filepath.Join(dir, *project.Services["txsvc"].Environment["TXSVC_CONFIG"]), selector.Registry{})
	if err != nil {
		t.Fatal(err)
	}
	created := strings.Join(project.Services["topics"].Command, " ")
	for topic := range file.Topics {
		if !strings.Contains(created, topic) {
			t.Errorf("topic %s is not created", topic)
		}
	}
}
