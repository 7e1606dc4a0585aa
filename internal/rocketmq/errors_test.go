package rocketmq

import (
	"strings"
	"testing"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// TestWordsOfABroker: what is told to everybody has no address, nothing that was sent, and an end.
func TestWordsOfABroker(t *testing.T) {
	for _, tc := range []struct {
		code         int
		remark, want string
	}{
		{remoting.CodeSystemError, "in-sync replicas not enough", "SYSTEM_ERROR (in-sync replicas not enough)"},
		{remoting.CodeNoPermission, "the broker[10.1.2.3] sending message is forbidden", "NO_PERMISSION (the broker sending message is forbidden)"},
		{remoting.CodeNoPermission, "the broker[mq.internal] sending transaction message is forbidden", "NO_PERMISSION (the broker sending transaction message is forbidden)"},
		{remoting.CodeTopicNotExist, "topic[t] not exist, apply first please!\nSee https://x for further details.", "TOPIC_NOT_EXIST (topic[t] not exist, apply first please!)"},
		{remoting.CodeSystemError, `java.lang.NumberFormatException: For input string: "4711 s3cret", java.base/x`, "SYSTEM_ERROR (java.lang.NumberFormatException)"},
		{remoting.CodeSystemBusy, "[TIMEOUT_CLEAN_QUEUE]broker busy, period in queue: 203ms, size of queue: 5", "SYSTEM_BUSY ([TIMEOUT_CLEAN_QUEUE]broker busy, period in queue: 203ms, size of queue: 5)"},
		{remoting.CodeServiceUnavailable, "from /10.1.2.3:10911\x00 and [::1]:80", "SERVICE_NOT_AVAILABLE (from  and)"},
		{remoting.CodeFlowControl, "", "FLOW_CONTROL"},
		{4242, strings.Repeat("ü", 300), "code 4242 (" + strings.Repeat("ü", maxRemark/2) + "…)"},
	} {
		err := endError(&remoting.BrokerError{Op: "send", Addr: "10.1.2.3:10911", Code: tc.code, Remark: tc.remark})
		if got := strings.TrimPrefix(txn.Why(err), "the broker answered "); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.remark, got, tc.want)
		}
		if !remoting.IsCode(err, tc.code) || !strings.Contains(err.Error(), tc.remark) {
			t.Errorf("%v has lost what the log is to tell", err)
		}
	}
}
