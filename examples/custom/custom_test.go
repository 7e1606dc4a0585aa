package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/txsvc/txsvc"
)

func TestDepositPlansOneStatement(t *testing.T) {
	plan, err := Deposit{}.Plan(txsvc.Input{ShardKey: "eu-7", Payload: json.RawMessage(`{"amount": 5}`)})
	if err != nil || len(plan.Statements) != 1 || plan.Statements[0].Args[0] != "eu-7" {
		t.Errorf("got %+v, %v, want one statement for eu-7", plan, err)
	}
	_, err = Deposit{}.Plan(txsvc.Input{ShardKey: "eu-7", Payload: json.RawMessage(`{"amount": 10001}`)})
	if rejection, ok := errors.AsType[*txsvc.Rejection](err); !ok {
		t.Errorf("a large deposit: got %v (%v), want a rejection", err, rejection)
	}
}

func TestTransferRefusesNothing(t *testing.T) {
	if _, err := (Transfer{}).Plan(txsvc.Input{Payload: json.RawMessage(`{"to": "us-1", "amount": 0}`)}); err == nil {
		t.Error("an amount of 0 is taken")
	}
}

func TestGeo(t *testing.T) {
	s, err := NewGeo(txsvc.ParseOptions(`regions: {eu: [0, 1], us: [2], mars: [9]}`))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{ // region, or what the error has
		"eu-1": "eu", "eu-2": "eu", "us-1": "us", "asia-1": "/shard_key: must begin with", "mars-1": "the region mars",
	} {
		queues := []txsvc.Queue{{Broker: "a", ID: 0}, {Broker: "a", ID: 1}, {Broker: "a", ID: 2}}
		choice, err := s.Select(queues, txsvc.SelectorInput{ShardKey: key})
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && choice.Lane != want {
			t.Errorf("%s: got %+v, %v, want %s", key, choice, err, want)
		}
		if again, _ := s.Select([]txsvc.Queue{{Broker: "a", ID: 0}, {Broker: "a", ID: 1}, {Broker: "a", ID: 2}}, txsvc.SelectorInput{ShardKey: key}); again != choice {
			t.Errorf("%s: got %+v, then %+v", key, choice, again)
		}
	}
}

func TestGeoRefusesOptions(t *testing.T) {
	for text, want := range map[string]string{
		``:                       "regions is required",
		`regions: {eu: [0, -1]}`: "/regions/eu/1: the id of a queue is not negative",
		`region: {eu: [0]}`:      "unknown field",
	} {
		if _, err := NewGeo(txsvc.ParseOptions(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}
