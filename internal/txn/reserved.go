package txn

import "strings"

// reserved says why a client may not give a property of this name, and is empty where it may. Brokers and clients of
// RocketMQ act upon these properties: they move, delay, drop or renumber the message, or read another message's identity
// out of it. The lists are those of the newest version; a test compares them with the constants of each.
func reserved(name string) string {
	if why := reservedNames[name]; why != "" {
		return why
	}
	for _, class := range reservedPrefixes {
		if strings.HasPrefix(name, class.prefix) {
			return class.why
		}
	}
	return ""
}

// reservedPrefixes are whole classes, so that a constant that RocketMQ adds to one of them is refused before this list knows it.
var reservedPrefixes = []struct{ prefix, why string }{
	{"__", "RocketMQ keeps names that begin with two underscores for itself"},
	{"_SYS_", "RocketMQ keeps names that begin with _SYS_ for itself"},
	{"RMQ_SYS_", "RocketMQ keeps names that begin with RMQ_SYS_ for itself"},
	{"TIMER_", "RocketMQ's timer uses it"},
	{"INNER_", "RocketMQ's batches and light queues use it"},
	{"POP_CK", "RocketMQ's pop consumers use it"},
	{"DLQ_ORIGIN_", "RocketMQ's dead-letter queues use it"},
}

// reservedNames has every other name, with who uses it.
var reservedNames = func() map[string]string {
	names := make(map[string]string)
	for why, list := range map[string]string{
		"a field of the request sets it": "KEYS TAGS DELAY",
		"this service sets it":           "SHARDING_KEY TX_ID TX_KIND TX_PARENT traceparent",
		"RocketMQ's transactions use it": `TRAN_MSG PGROUP REAL_TOPIC REAL_QID REAL_QUEUE_ID TRAN_PREPARED_QUEUE_OFFSET TRANSACTION_ID
			TRANSACTION_CHECK_TIMES CHECK_IMMUNITY_TIME_IN_SECONDS TRANS_OFFSET`,
		"RocketMQ's clients and consumers use it": `WAIT UNIQ_KEY _KEYS EXTEND_UNIQ_INFO DUP_INFO BUYER_ID MIN_OFFSET MAX_OFFSET
			RECONSUME_TIME MAX_RECONSUME_TIMES RETRY_TOPIC ORIGIN_MESSAGE_ID ORIGIN_GROUP CONSUME_START_TIME 1ST_POP_TIME
			CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME TRACE_ON TRACE_CONTEXT MSG_REGION MSG_TYPE
			PROPERTY_MESSAGE_TYPE INSTANCE_ID TRANSIENT_GROUP_CONFIG LITE_TOPIC BORN_HOST BORN_TIMESTAMP`,
		"RocketMQ's brokers use it": `CLUSTER TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG PROPERTY_FORWARD_QUEUE_ID REDIRECT CRC32 E_T`,
	} {
		for _, name := range strings.Fields(list) {
			names[name] = why
		}
	}
	return names
}()
