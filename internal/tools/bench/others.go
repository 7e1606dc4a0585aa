package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"

	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// The versions of what the contender in Java uses. RocketMQ's client has the version of the broker.
const (
	undertowVersion = "2.3.27.Final"
	jdbcVersion     = "42.7.14"
	hikariVersion   = "7.1.0"
)

// javaWarm is how long the contender in Java gets before its first turn: after a minute it does not get faster any more.
const javaWarm = time.Minute

// javaProducer is RocketMQ's own producer of half messages.
func (b *bench) javaProducer() *contender {
	return &contender{
		name: "java", does: "Java: TransactionMQProducer, JDBC, Undertow; the queues are the producer's choice", path: "/v1/notes", body: appendNote,
		keys: defaultKeys, table: "bench.java_notes", topic: "bench-java", stays: true, warm: javaWarm,
		tables: "create table bench.java_tx (like bench.plain_tx including all);",
		build: func(ctx context.Context) (err error) {
			b.javaClasspath, err = devstack.Classpath(ctx, "bench-java-"+devstack.RocketMQVersion+"-"+undertowVersion+"-"+jdbcVersion+"-"+hikariVersion,
				func(step string) { say("%s", step) },
				devstack.Artifact{Group: "org.apache.rocketmq", Name: "rocketmq-client", Version: devstack.RocketMQVersion},
				devstack.Artifact{Group: "io.undertow", Name: "undertow-core", Version: undertowVersion},
				devstack.Artifact{Group: "org.postgresql", Name: "postgresql", Version: jdbcVersion},
				devstack.Artifact{Group: "com.zaxxer", Name: "HikariCP", Version: hikariVersion})
			return err
		},
		start: b.startJava,
	}
}

func (b *bench) startJava(address string) (command, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return command{}, fmt.Errorf("the address: %w", err)
	}
	database, err := url.Parse(b.databaseURL)
	if err != nil {
		return command{}, fmt.Errorf("the database's URL: %w", err)
	}
	password, _ := database.User.Password()
	return command{args: []string{
		"java", "-Xms512m", "-Xmx512m", "-Duser.home=" + b.dir, "-cp", b.javaClasspath, filepath.Join(b.Root, "internal/tools/bench/java/Producer.java"),
		port, b.nameserver, "jdbc:postgresql://" + database.Host + database.Path + "?sslmode=disable", database.User.Username(), password,
	}}, nil
}

// riverInsert is River's insert of a job in the transaction.
func (b *bench) riverInsert() *contender {
	binary := func() string { return filepath.Join(b.dir, "river") }
	return &contender{
		name: "river", does: "River: a job is inserted in the transaction, and nobody works it", path: "/v1/notes", body: appendNote,
		keys: defaultKeys, table: "bench.river_notes",
		build: func(ctx context.Context) error {
			return b.build(ctx, filepath.Join(b.Root, "internal/tools/bench/river"), binary(), ".")
		},
		start: func(address string) (command, error) {
			return command{args: []string{binary()}, env: []string{"LISTEN=" + address, "TXSVC_DATABASE_URL=" + b.databaseURL}}, nil
		},
	}
}
