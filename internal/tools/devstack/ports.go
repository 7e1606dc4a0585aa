package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Chosen ports stay below the range from which systems take the local ports of
// outgoing connections (Linux 32768, macOS 49152), so that no passing connection
// holds a broker's port while that restarts.
const lowestPort, highestPort = 15000, 32000

// errPortTaken means that a port that was free when it was chosen no longer is.
var errPortTaken = errors.New("port taken")

type ports struct {
	Postgres int   `json:"postgres"`
	Namesrv  int   `json:"namesrv"`
	Brokers  []int `json:"brokers"`
	Slaves   []int `json:"slaves,omitempty"`
}

// choosePorts takes the configured ports, or the remembered ones, or free ones. A configured port that is in use is an
// error; instead of a remembered one in use, it chooses another.
func (d *stateDir) choosePorts(o Options) (ports, error) {
	var last ports
	if err := readJSON(d.join("ports.json"), &last); err != nil {
		return ports{}, fmt.Errorf("reading the remembered ports: %w", err)
	}
	c := portChooser{used: map[int]bool{}}
	p := ports{
		Postgres: c.choose("PostgreSQL", o.PostgresPort, last.Postgres, 0),
		Namesrv:  c.choose("the name server", o.NamesrvPort, last.Namesrv, 0),
	}
	for i := range o.Brokers {
		configured := 0
		if i == 0 {
			configured = o.BrokerPort
		}
		p.Brokers = append(p.Brokers, c.choose(BrokerName(i), configured, at(last.Brokers, i), -2, 0, 1))
		if o.Slaves {
			p.Slaves = append(p.Slaves, c.choose(slaveName(i), 0, at(last.Slaves, i), -2, 0, 1))
		}
	}
	return p, c.err
}

func at(list []int, i int) int {
	if i < len(list) {
		return list[i]
	}
	return 0
}

func (d *stateDir) keepPorts(p ports) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("keeping the ports: %w", err)
	}
	if err := writeFile(d.join("ports.json"), data, 0o644); err != nil {
		return fmt.Errorf("keeping the ports: %w", err)
	}
	return nil
}

type portChooser struct {
	used map[int]bool
	err  error // the first one
}

// choose returns a port that is free at each of the offsets from it.
func (c *portChooser) choose(who string, configured, remembered int, offsets ...int) int {
	if configured != 0 {
		if !c.take(configured, offsets) && c.err == nil {
			c.err = fmt.Errorf("the port %d of %s is in use (needed as well: its offsets %v)", configured, who, offsets)
		}
		return configured
	}
	if remembered != 0 && c.take(remembered, offsets) {
		return remembered
	}
	for range 1000 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if c.take(port, offsets) {
			return port
		}
	}
	if c.err == nil {
		c.err = fmt.Errorf("no free port for %s between %d and %d", who, lowestPort, highestPort)
	}
	return 0
}

func (c *portChooser) take(port int, offsets []int) bool {
	for _, o := range offsets {
		if c.used[port+o] || !portFree(port+o) {
			return false
		}
	}
	for _, o := range offsets {
		c.used[port+o] = true
	}
	return true
}

// portFree tries loopback and all interfaces, because brokers open their replication port on all.
func portFree(port int) bool {
	var config net.ListenConfig
	for _, host := range []string{"127.0.0.1", ""} {
		l, err := config.Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}
