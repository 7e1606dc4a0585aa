package config

import "embed"

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
	return Parse(DevName, text, dev)
}
