package rocketmq

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// codeNames are RocketMQ's names (ResponseCode) of the answers to messages and their ends that are no success.
var codeNames = map[int]string{
	remoting.CodeSystemError: "SYSTEM_ERROR", remoting.CodeSystemBusy: "SYSTEM_BUSY", remoting.CodeNotSupported: "REQUEST_CODE_NOT_SUPPORTED",
	remoting.CodeFlushDiskTimeout: "FLUSH_DISK_TIMEOUT", remoting.CodeSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
	remoting.CodeFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT", remoting.CodeMessageIllegal: "MESSAGE_ILLEGAL",
	remoting.CodeServiceUnavailable: "SERVICE_NOT_AVAILABLE", remoting.CodeNoPermission: "NO_PERMISSION", remoting.CodeTopicNotExist: "TOPIC_NOT_EXIST",
	remoting.CodeInvalidParameter: "INVALID_PARAMETER", remoting.CodeFlowControl: "FLOW_CONTROL", remoting.CodeNotLeader: "NOT_LEADER",
	remoting.CodeIllegalOperation: "ILLEGAL_OPERATION", remoting.CodeGoAway: "GO_AWAY",
}

var statusMeanings = map[remoting.SendStatus]string{
	remoting.FlushDiskTimeout:  "it was not flushed to disk in time",
	remoting.SlaveNotAvailable: "there is no slave that could take it",
	remoting.FlushSlaveTimeout: "no slave confirmed it in time",
}

// answered gives an error that holds a broker's answer the words for it; another stays as it is.
func answered(err error) error {
	answer, ok := errors.AsType[*remoting.BrokerError](err)
	if !ok {
		return err
	}
	name := codeNames[answer.Code]
	if name == "" {
		name = "code " + strconv.Itoa(answer.Code)
	}
	if said := remark(answer.Remark); said != "" {
		name += " (" + said + ")"
	}
	return &txn.BrokerAnswer{Words: name, Cause: err}
}

// storedWith is the error of a message that a broker stored with less than it promises.
func storedWith(status remoting.SendStatus, kind error) error {
	return &txn.BrokerAnswer{Words: status.String() + " (" + statusMeanings[status] + ")", Cause: kind}
}

const maxRemark = 200 // bytes

var (
	// What Java adds to the name of an exception may repeat what was sent.
	exceptionText = regexp.MustCompile(`([\w$.]*(?:Exception|Error)\b).*`)
	addressText   = regexp.MustCompile(`\[[[:xdigit:].]*:[[:xdigit:].:]*\](?::\d+)?|(broker)\[[^\[\]]*\]|/?\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?`)
	restOfRemark  = regexp.MustCompile(`(?s)[\r\n].*`)
)

// remark returns what of a broker's remark everybody may see: its first line without addresses, and of an exception the
// name.
func remark(text string) string {
	text = restOfRemark.ReplaceAllString(text, "")
	text = exceptionText.ReplaceAllString(text, "$1")
	text = addressText.ReplaceAllString(text, "$1")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	if len(text) > maxRemark {
		text = strings.ToValidUTF8(text[:maxRemark], "") + "…"
	}
	return strings.TrimSpace(text)
}
