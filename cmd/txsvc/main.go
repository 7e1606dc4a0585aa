// Command txsvc runs transactions that change PostgreSQL and publish a RocketMQ message as one unit; see README.md.
package main

import "github.com/txsvc/txsvc"

func main() { txsvc.Main() }
