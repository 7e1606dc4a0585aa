package main

import (
	"github.com/txsvc/txsvc/internal/config"
	"github.com/txsvc/txsvc/internal/txn"
)

// buildTopics makes the destinations of messages that belong to no kind.
func buildTopics(file *config.File) (map[string]txn.Destination, error) {
	topics := make(map[string]txn.Destination, len(file.Topics))
	for name, topic := range file.Topics {
		to, err := destination(name, topic.Selector, false)
		if err != nil {
			return nil, err
		}
		topics[name] = to
	}
	return topics, nil
}
