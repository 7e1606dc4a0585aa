package remoting

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// Bits of a queue's or topic's permission (PermName of RocketMQ).
const (
	PermWrite = 1 << 1
	PermRead  = 1 << 2
)

// masterID is the broker id of a master in a broker's address list.
const masterID = "0"

// Route has the queues of a topic and their brokers.
type Route struct {
	Topic   string
	Queues  []QueueData // sorted by broker name; brokers without a master are left out
	Absent  []string    // brokers of the topic that have slaves only, sorted
	Order   string      // orderTopicConf, the queues of an order topic, like "broker-a:4;broker-b:4"; empty for other topics
	Static  bool        // a static topic, whose queues are mapped to those of brokers
	Fetched time.Time   // when a name server answered
}

// QueueData is one broker's share of a topic: queue ids 0 to Write-1 can be
// written, 0 to Read-1 read, as far as Perm allows.
type QueueData struct {
	Broker string
	Addr   string // of the master
	Read   int
	Write  int
	Perm   int
}

// Writable returns the number of queues that can be written.
func (q QueueData) Writable() int {
	if q.Perm&PermWrite == 0 {
		return 0
	}
	return q.Write
}

// Readable returns the number of queues that consumers read.
func (q QueueData) Readable() int {
	if q.Perm&PermRead == 0 {
		return 0
	}
	return q.Read
}

// Usable returns the number of queues to which messages can be sent so that
// consumers read them.
func (q QueueData) Usable() int { return min(q.Writable(), q.Readable()) }

// Master is a broker that takes messages.
type Master struct{ Cluster, Name, Addr string }

// routeJSON is TopicRouteData of RocketMQ.
type routeJSON struct {
	BrokerDatas []brokerJSON `json:"brokerDatas"`
	QueueDatas  []struct {
		BrokerName     string `json:"brokerName"`
		ReadQueueNums  int    `json:"readQueueNums"`
		WriteQueueNums int    `json:"writeQueueNums"`
		Perm           int    `json:"perm"`
	} `json:"queueDatas"`
	OrderTopicConf string                     `json:"orderTopicConf"`
	QueueMapping   map[string]json.RawMessage `json:"topicQueueMappingByBroker"`
}

type brokerJSON struct {
	Cluster     string            `json:"cluster"`
	BrokerName  string            `json:"brokerName"`
	BrokerAddrs map[string]string `json:"brokerAddrs"`
}

func decodeRoute(topic string, body []byte) (Route, error) {
	var data routeJSON
	if err := unmarshalLoose(body, &data); err != nil {
		return Route{}, err
	}
	masters := make(map[string]string, len(data.BrokerDatas))
	for _, b := range data.BrokerDatas {
		masters[b.BrokerName] = b.BrokerAddrs[masterID]
	}
	route := Route{Topic: topic, Order: data.OrderTopicConf, Static: len(data.QueueMapping) > 0, Fetched: time.Now()}
	for _, q := range data.QueueDatas {
		addr := masters[q.BrokerName]
		if addr == "" {
			route.Absent = append(route.Absent, q.BrokerName)
			continue
		}
		route.Queues = append(route.Queues, QueueData{
			Broker: q.BrokerName, Addr: addr, Read: q.ReadQueueNums, Write: q.WriteQueueNums, Perm: q.Perm,
		})
	}
	slices.Sort(route.Absent)
	slices.SortFunc(route.Queues, func(a, b QueueData) int { return cmp.Compare(a.Broker, b.Broker) })
	return route, nil
}

// decodeMasters reads ClusterInfo of RocketMQ.
func decodeMasters(body []byte) ([]Master, error) {
	var data struct {
		BrokerAddrTable map[string]brokerJSON `json:"brokerAddrTable"`
	}
	if err := unmarshalLoose(body, &data); err != nil {
		return nil, err
	}
	var masters []Master
	for name, b := range data.BrokerAddrTable {
		if addr := b.BrokerAddrs[masterID]; addr != "" {
			masters = append(masters, Master{Cluster: b.Cluster, Name: name, Addr: addr})
		}
	}
	slices.SortFunc(masters, func(a, b Master) int { return cmp.Compare(a.Name, b.Name) })
	return masters, nil
}

// fetchRoute asks a name server for a topic (GET_ROUTEINFO_BY_TOPIC).
func (n *nameservers) fetchRoute(ctx context.Context, topic string) (Route, error) {
	reply, err := n.ask(ctx, &request{
		op: "route of topic " + strconv.Quote(topic), code: codeRoute,
		header: fieldList{{fieldTopic, topic}, {"acceptStandardJsonOnly", "true"}},
	})
	if err != nil {
		return Route{}, err
	}
	return decodeRoute(topic, reply.Body)
}

// fetchMasters asks a name server for all brokers (GET_BROKER_CLUSTER_INFO).
func (n *nameservers) fetchMasters(ctx context.Context) ([]Master, error) {
	reply, err := n.ask(ctx, &request{op: "cluster info", code: codeClusterInfo})
	if err != nil {
		return nil, err
	}
	return decodeMasters(reply.Body)
}
