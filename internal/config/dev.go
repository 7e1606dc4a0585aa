package config

import (
	"embed"
	"os"
	"path/filepath"

	"github.com/txsvc/txsvc/internal/selector"
)

//go:embed dev.yaml schemas
var dev embed.FS

// DevName is the name of the shipped configuration in errors.
const DevName = "dev.yaml"

// Dev returns the configuration that ships with the binary, for txsvc dev and as an example.
func Dev() (*File, error) {
	text, err := dev.ReadFile(DevName)
	if err != nil {
		return nil, err
	}
	return Parse(DevName, text, dev, selector.Registry{})
}

// WriteDev writes the shipped configuration and its schemas to a directory, which it empties first, and returns the name of
// the file.
func WriteDev(dir string) (string, error) {
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, DevName), os.CopyFS(dir, dev)
}
