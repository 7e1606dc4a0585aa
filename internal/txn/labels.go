package txn

import (
	"fmt"
)

// Labels are what a client may say of a message beside its body.
type Labels struct {
	Tag        string
	Keys       []string
	Properties map[string]string
}

// Check says what is wrong with the labels and the shard key of a message without a transaction. at is the JSON Pointer
// of the object that has them; the shard key may stand elsewhere, and is checked by CheckShardKey.
func (l *Labels) Check(at, shardKey string) []FieldError {
	if _, tooMany := l.size(at, len(shardKey), " and shard key"); tooMany != nil { // alone: it bounds what the others can find
		return []FieldError{*tooMany}
	}
	var errs fieldErrors
	l.check(&errs, at)
	return errs
}

// CheckShardKey says what is wrong with a shard key at /shard_key.
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

// size is what the labels take among a message's properties, in bytes, with those that the others take. The error says
// that it is more than a message can hold, at the field that has most of it.
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
