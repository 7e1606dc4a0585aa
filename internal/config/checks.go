package config

import (
	"regexp"
	"slices"
	"strings"
)

var (
	kindName  = regexp.MustCompile(`^[a-z0-9]+([._-][a-z0-9]+)*$`)
	topicName = regexp.MustCompile(`^[%|a-zA-Z0-9_-]+$`)
	endpoint  = regexp.MustCompile(`^/v1(/[A-Za-z0-9][A-Za-z0-9._~-]*)+$`)
)

const maxName = 100

// checkKindName returns the mistake in the name of a kind; empty when there is none.
func checkKindName(name string) string {
	if len(name) > maxName || !kindName.MatchString(name) {
		return "the name of a kind has at most 100 small letters and digits, in parts joined by . _ or -"
	}
	return ""
}

// systemTopics are RocketMQ's own (TopicValidator of 5.x).
var systemTopics = []string{
	"TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT",
	"CHECKPOINT_TOPIC",
}

// systemPrefixes begin the names of topics that brokers make for themselves; %LMQ% is that of light message queues.
var systemPrefixes = []string{"%RETRY%", "%DLQ%", "%LMQ%"}

// checkTopic says why a topic cannot take the messages of a kind, or nothing. The characters and the length are those of
// RocketMQ's TopicValidator.
func checkTopic(name string) string {
	if len(name) > 127 || !topicName.MatchString(name) {
		return "the name of a topic has at most 127 letters, digits and the characters % | _ -"
	}
	if slices.Contains(systemTopics, name) || strings.HasPrefix(strings.ToUpper(name), "RMQ_SYS_") {
		return "this topic is RocketMQ's own"
	}
	for _, prefix := range systemPrefixes {
		if strings.HasPrefix(name, prefix) {
			return "topics that begin with " + prefix + " are RocketMQ's own"
		}
	}
	return ""
}

// checkTag says why consumers could not subscribe to a tag, or nothing; requests are held to the same rules (txn).
func checkTag(tag string) string {
	switch {
	case len(tag) > 127:
		return "a tag has at most 127 bytes"
	case strings.Contains(tag, "||"), strings.TrimSpace(tag) != tag, tag == "*":
		return "a tag must not contain ||, begin or end with a space, or be *: consumers could not subscribe to it"
	case strings.ContainsAny(tag, "\x00\x01\x02"):
		return "a tag must not contain the characters U+0000, U+0001 or U+0002"
	}
	return ""
}

// ownPaths are those of the API itself.
var ownPaths = []string{"/v1/transactions", "/v1/messages", "/v1/routes", "/v1/topics", "/v1/kinds"}

// checkPath says why a kind cannot have an endpoint at the path, or nothing.
func checkPath(path string) string {
	if len(path) > 255 || !endpoint.MatchString(path) {
		return "a path begins with /v1/ and has parts of letters, digits and . _ ~ - that begin with a letter or a digit"
	}
	for _, own := range ownPaths {
		if path == own || strings.HasPrefix(path, own+"/") {
			return own + " belongs to the API itself"
		}
	}
	return ""
}
