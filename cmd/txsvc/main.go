// Command txsvc runs transactions that change PostgreSQL and publish a RocketMQ message as one unit; see README.md.
package main

import (
	"github.com/txsvc/txsvc"
	"github.com/txsvc/txsvc/internal/orders"
)

func main() { txsvc.Main(txsvc.WithHandler("orders", orders.Handler{})) }
