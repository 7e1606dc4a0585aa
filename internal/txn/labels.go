package txn

import (
	"fmt"
)

// Labels are the parts of a message, other than its body, that a client may give.
type Labels struct {
	Tag        string
	Keys       []string
	Properties map[string]string
}

// Check returns the mistakes in the labels of a message without a transaction, and in their size together with the
// shard key. at is the JSON Pointer of the object that has the labels. CheckShardKey checks the shard key itself,
// because it may be in another object.
func (l *Labels) Check(at, shardKey string) []FieldError {
	if _, tooMany := l.size(at, len(shardKey), " and shard key"); tooMany != nil { // alone, because it bounds the other checks
		return []FieldError{*tooMany}
	}
	var errs fieldErrors
	l.check(&errs, at)
	return errs
}

// CheckShardKey returns the mistakes in a shard key at /shard_key.
func CheckShardKey(key string) []FieldError {
	var errs fieldErrors
	checkShardKey(&errs, key)
	return errs
}

func (l *Labels) check(errs *fieldErrors, at string) {
	checkTag(errs, at+"/tag", l.Tag)
	checkKeys(errs, at+"/keys", l.Keys)
	checkProperties(errs, at+"/properties", l.Properties)
}

// size returns the bytes that the labels and others take among a message's properties. The error says that a message
// cannot have so many, at the field that has most of them.
func (l *Labels) size(at string, others int, names string) (int, *FieldError) {
	keys, named := 0, 0
	for _, key := range l.Keys {
		keys += len(key) + 1
	}
	for name, value := range l.Properties {
		named += len(name) + len(value) + 2
	}
	size := others + len(l.Tag) + keys + named
	if size <= MaxPropertiesSize {
		return size, nil
	}
	pointer := at + "/properties"
	if keys > named {
		pointer = at + "/keys"
	}
	return size, &FieldError{pointer, fmt.Sprintf("properties, keys, tag%s have %d bytes together, at most %d are allowed",
		names, size, MaxPropertiesSize)}
}
