package app

import (
	"fmt"
	"runtime/debug"
	"slices"
)

type versionCommand struct{}

// Run prints the version.
func (versionCommand) Run(out output) error {
	_, err := fmt.Fprintln(out.stdout, "txsvc", version())
	return err
}

// release is set by the linker for a release: -ldflags "-X github.com/txsvc/txsvc/internal/app.release=v1.2.3".
var release = ""

const module = "github.com/txsvc/txsvc"

// version is the release, or what the Go toolchain knows of the build.
func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	version := info.Main.Version
	if info.Main.Path != module { // a user's binary
		i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == module })
		if i < 0 {
			return "unknown"
		}
		return info.Deps[i].Version + " in " + info.Main.Path + " " + version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && version == "(devel)" {
			version = "devel-" + s.Value[:min(len(s.Value), 12)]
		}
	}
	return version
}
