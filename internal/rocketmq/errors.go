package rocketmq

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// This file is the one place where errors of the wire, and of rocketmq-client-go, become a txn.SendError.

// messageError is the error of messages that were not accepted, whichever way they were sent.
func messageError(topic string, err error) *txn.SendError {
	answer, answered := errors.AsType[*remoting.BrokerError](err)
	switch {
	case errors.Is(err, errNoRoute):
		return noQueue(err, textNoRoute, topic)
	case errors.Is(err, remoting.ErrInvalid):
		return &txn.SendError{Outcome: txn.RefusedForGood, Reason: txn.ReasonInvalid, Words: "the message has a form that RocketMQ does not take", Cause: err}
	case !answered:
		return callError(err)
	}
	s := sayingOf(answer)
	e := answerError(s.means.outcome, s.means.reason, answer, err)
	e.Field, e.Words = s.field, strings.Replace(s.text, "%s", topic, 1)
	if answer.Code == remoting.CodeNoPermission || s.means == excluded {
		e.Words += ": " + e.Answered()
	}
	return e
}

// invalidField is the error of a message that the broker is known to refuse because of one of its fields.
func invalidField(field, words string) *txn.SendError {
	return &txn.SendError{Outcome: txn.RefusedForGood, Reason: txn.ReasonInvalid, Field: field, Words: words}
}

// oneWayError is the error of a message that was not handed to the connection.
func oneWayError(m *txn.Message, err error) error {
	if err == nil {
		return nil
	}
	return messageError(m.Topic, err)
}

// storedWith is the error of a message that the broker stored with less than it promises.
func storedWith(status remoting.SendStatus, outcome txn.SendOutcome) *txn.SendError {
	return &txn.SendError{
		Outcome: outcome, Reason: txn.ReasonFailed, Answer: status.String() + " (" + statusMeanings[status] + ")",
		Cause: errors.New("stored with " + status.String() + " only"),
	}
}

// goneRemarks are the broker's words (EndTransactionProcessor) when something else, or nothing, stands where the half
// message was: it is deleted, or the broker has lost its disk. A message without a producer group makes the check fail
// itself.
var goneRemarks = []string{
	"Find prepared transaction message failed", "The transaction state table offset wrong", "The commit log offset wrong",
	"The producer group wrong", "EndTransactionProcessor.checkPrepareMessage(",
}

// endError is the error of an END_TRANSACTION. A busy or unavailable broker, and one that refuses an end, did not execute it,
// and nor did one that has no such half message; of other answers it is not certain.
func endError(err error) error {
	answer, answered := errors.AsType[*remoting.BrokerError](err)
	switch {
	case err == nil:
		return nil
	case !answered:
		return callError(err)
	}
	switch answer.Code {
	case remoting.CodeSystemBusy, remoting.CodeServiceUnavailable, remoting.CodeIllegalOperation, remoting.CodeMessageIllegal,
		remoting.CodeNoPermission, remoting.CodeSlaveNotAvailable:
		return answerError(txn.Unsent, txn.ReasonFailed, answer, err)
	case remoting.CodeSystemError:
		if slices.ContainsFunc(goneRemarks, func(remark string) bool { return strings.Contains(answer.Remark, remark) }) {
			return answerError(txn.Unsent, txn.ReasonHalfGone, answer, err)
		}
	}
	return answerError(txn.MaybeSent, txn.ReasonFailed, answer, err)
}

// halfGone is the error of an end whose half message is not where it was stored.
func halfGone(cause error) error {
	return &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonHalfGone, Cause: cause}
}

func answerError(outcome txn.SendOutcome, reason txn.SendReason, answer *remoting.BrokerError, err error) *txn.SendError {
	return &txn.SendError{Outcome: outcome, Reason: reason, Answer: answerWords(answer), Cause: err}
}

// callError is the error of a request that got no answer.
func callError(err error) *txn.SendError {
	if errors.Is(err, remoting.ErrNotSent) {
		return &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonUnreachable, Cause: err}
	}
	return &txn.SendError{Outcome: txn.MaybeSent, Reason: txn.ReasonSilent, Cause: err}
}

// questionError is the error of a question about asking. A question changes nothing, whether it was answered or not.
func questionError(err error, asking string) error {
	if err == nil {
		return nil
	}
	return &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonUnanswered, Cause: fmt.Errorf("%s: %w", asking, err)}
}

// routeError is the error of a topic whose route is not known.
func routeError(topic string, err error) *txn.SendError {
	if remoting.IsCode(err, remoting.CodeTopicNotExist) {
		return noQueue(err, textNoTopic, topic)
	}
	return &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonUnreachable, Words: fmt.Sprintf(textNoRoute, topic), Cause: err}
}

// noQueue is the error of a topic that has no queue that could be used, or is not there.
func noQueue(cause error, format string, args ...any) *txn.SendError {
	return &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonNoQueue, Words: fmt.Sprintf(format, args...), Cause: cause}
}

// settingsError is the error of a topic whose settings exclude what is asked for.
func settingsError(cause error, format string, args ...any) *txn.SendError {
	return &txn.SendError{Outcome: txn.Unsent, Reason: txn.ReasonSettings, Words: fmt.Sprintf(format, args...), Cause: cause}
}

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

// answerWords returns what everybody may see of a broker's answer; see txn.SendError.
func answerWords(answer *remoting.BrokerError) string {
	name := codeNames[answer.Code]
	if name == "" {
		name = "code " + strconv.Itoa(answer.Code)
	}
	if said := remark(answer.Remark); said != "" {
		name += " (" + said + ")"
	}
	return name
}

const maxRemark = 200 // bytes

var (
	// What Java adds to the name of an exception may repeat what was sent.
	exceptionText = regexp.MustCompile(`([\w$.]*(?:Exception|Error)\b).*`)
	addressText   = regexp.MustCompile(`\[[[:xdigit:].]*:[[:xdigit:].:]*\](?::\d+)?|(broker)\[[^\[\]]*\]|/?\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?`)
	restOfRemark  = regexp.MustCompile(`(?s)[\r\n].*`)
)

// remark returns the part of a broker's remark that everybody may see: its first line without addresses, and of an exception
// the name.
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
