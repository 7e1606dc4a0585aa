package remoting

import (
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/devstack"
	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

// The signatures were computed by RocketMQ 5.4.0's AclClientRPCHook.
func TestSignature(t *testing.T) {
	c := credentials{accessKey: "access", secretKey: "secret"}
	for _, row := range []struct {
		fields fieldList
		body   string
		want   string
	}{
		{fieldList{{"topic", "orders"}, {"b", "2"}, {"Z", "zz"}, {"_UNIQUE_KEY_QUERY", "true"}, {"empty", ""}, {"a", "ä世"}},
			"body", "jVCP5rXGgzAjExgleDpW8/jFXfM="},
		{fieldList{{"x", "y"}}, "", "77I/8SC0bfn5eM0od0N+IHpfDUE="},
	} {
		signed := Frame{Fields: c.sign(row.fields, []byte(row.body))}
		if got := signed.Get("Signature"); got != row.want || signed.Get("AccessKey") != "access" {
			t.Errorf("%v: got %s by %s, want %s", row.fields, got, signed.Get("AccessKey"), row.want)
		}
	}
}

const (
	adminUser = "admin"
	adminKey  = "12345678"
)

func aclConfig() map[string]string {
	inner := `{"accessKey":"` + adminUser + `","secretKey":"` + adminKey + `"}`
	return stacktest.Patient(map[string]string{
		"authenticationEnabled":                "true",
		"authenticationProvider":               "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
		"authenticationMetadataProvider":       "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
		"authorizationEnabled":                 "true",
		"authorizationProvider":                "org.apache.rocketmq.auth.authorization.provider.DefaultAuthorizationProvider",
		"authorizationMetadataProvider":        "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider",
		"initAuthenticationUser":               `{"username":"` + adminUser + `","password":"` + adminKey + `"}`,
		"innerClientAuthenticationCredentials": inner,
	})
}

func TestBrokerWithAccessControl(t *testing.T) {
	stack := stacktest.Private(t, devstack.Options{BrokerConfig: aclConfig()})
	for name, codec := range codecDirs {
		cfg := Config{Nameservers: stack.Nameservers(), Group: "signed", AccessKey: adminUser, SecretKey: adminKey, Codec: &codec}
		c := startClient(t, cfg, nil)
		topic, broker := newTopic(t, c, 1), anyBroker(t, c)
		sent, err := c.Send(t.Context(), broker, half(topic, 0, "body"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		end(t, c, broker, topic, sent, Commit)
		assertQueue(t, c, topic, 0, 1)
		if _, err := c.SendBatch(t.Context(), broker, batchOf(topic, 0, 2)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.SendOneWay(broker, &SendRequest{Topic: topic, Body: []byte("one-way")}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		assertQueue(t, c, topic, 0, 4)
		if _, err := c.QueryByUniqKey(t.Context(), broker, topic, sent.UniqKey, time.Time{}, time.Time{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		refusedWithout(t, stack, topic, broker)
	}
}

// refusedWithout checks that the same request is refused with a wrong key, and without a key.
func refusedWithout(t *testing.T, stack *devstack.Stack, topic, broker string) {
	t.Helper()
	for _, keys := range [][2]string{{adminUser, "wrong"}, {"", ""}} {
		c, err := New(Config{Nameservers: stack.Nameservers(), Group: "unsigned", AccessKey: keys[0], SecretKey: keys[1]})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := c.Status(); len(s.Brokers) != 1 || s.Brokers[0].Ready() || s.Brokers[0].Err == nil {
			t.Errorf("key %q: got %+v, want a refused heartbeat", keys[1], s)
		}
		if _, err := c.Send(t.Context(), broker, half(topic, 0, "body")); !IsCode(err, CodeNoPermission) {
			t.Errorf("key %q: got %v, want code %d", keys[1], err, CodeNoPermission)
		}
		if _, err := c.SendBatch(t.Context(), broker, batchOf(topic, 0, 2)); !IsCode(err, CodeNoPermission) {
			t.Errorf("batch, key %q: got %v, want code %d", keys[1], err, CodeNoPermission)
		}
		_ = c.Close(t.Context()) // unregistering is refused too
	}
}
