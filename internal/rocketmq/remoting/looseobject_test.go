package remoting

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecordedRoute(t *testing.T) {
	for dir := range codecDirs {
		reply := recorded(t, dir+"/route-reply")
		route, err := decodeRoute("recorded", reply.Body)
		if err != nil || len(route.Queues) != 1 {
			t.Fatalf("%s: got %+v, %v", dir, route, err)
		}
		q := route.Queues[0]
		if q.Broker != "broker-a" || q.Addr == "" || q.Writable() != 2 || q.Read != 2 || q.Perm != PermRead|PermWrite {
			t.Errorf("%s: got %+v", dir, q)
		}
	}
}

func TestRecordedClusterInfo(t *testing.T) {
	for dir := range codecDirs {
		reply := recorded(t, dir+"/cluster-info-reply")
		if json.Valid(reply.Body) {
			t.Errorf("%s: the recorded cluster info is plain JSON, so it proves nothing", dir)
		}
		masters, err := decodeMasters(reply.Body)
		if err != nil || len(masters) != 1 || masters[0].Name != "broker-a" || masters[0].Addr == "" {
			t.Errorf("%s: got %+v, %v", dir, masters, err)
		}
	}
}

func TestRouteOfSeveralBrokers(t *testing.T) {
	body := `{"brokerDatas":[
		{"brokerName":"b","brokerAddrs":{0:"h:2",1:"h:3"}}, {"brokerName":"a","brokerAddrs":{0 :"h:1"}}, {"brokerName":"c","brokerAddrs":{1:"h:4"}}],
	  "queueDatas":[{"brokerName":"b","perm":4,"readQueueNums":1,"writeQueueNums":1},
		{"brokerName":"a","perm":6,"readQueueNums":4,"writeQueueNums":3},{"brokerName":"c","perm":6,"readQueueNums":4,"writeQueueNums":4}]}`
	route, err := decodeRoute("t", []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	want := []QueueData{
		{Broker: "a", Addr: "h:1", Read: 4, Write: 3, Perm: 6},
		{Broker: "b", Addr: "h:2", Read: 1, Write: 1, Perm: 4}, // c has no master
	}
	if diff := cmp.Diff(want, route.Queues); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c"}, route.Absent); diff != "" {
		t.Errorf("brokers without a master (-want +got):\n%s", diff)
	}
	if route.Queues[1].Writable() != 0 {
		t.Errorf("a queue without the permission is writable")
	}
}

func TestQuoteKeys(t *testing.T) {
	for in, want := range map[string]string{
		`{0:"a:1",1 : 2}`:           `{"0":"a:1","1" : 2}`,
		`{-1:[1,2,{3:4}],"5":6}`:    `{"-1":[1,2,{"3":4}],"5":6}`,
		`{"a\"{0:":"{0:1,2:3}"}`:    `{"a\"{0:":"{0:1,2:3}"}`,
		"{\n 0: true,\n key: null}": "{\n \"0\": true,\n \"key\": null}",
		`[1,2,true]`:                `[1,2,true]`,
		`{0:1,"unterminated`:        `{"0":1,"unterminated`,
		`{"a":"\`:                   `{"a":"\`,
		``:                          ``,
	} {
		if got := string(quoteKeys([]byte(in))); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// FuzzQuoteKeys checks that JSON stays the same, and that quoting twice is the same as quoting once.
func FuzzQuoteKeys(f *testing.F) {
	f.Add(`{0:"a:1",1 : 2}`)
	f.Add(`{"a":[1,{"b":"c,\\\"{0:"}]}`)
	f.Fuzz(func(t *testing.T, in string) {
		once := quoteKeys([]byte(in))
		if json.Valid([]byte(in)) && string(once) != in {
			t.Errorf("%q is JSON and was changed to %q", in, once)
		}
		if twice := quoteKeys(once); string(twice) != string(once) {
			t.Errorf("%q: first %q, then %q", in, once, twice)
		}
	})
}
