// Command custom is txsvc with two local transactions and a selector of its own.
package main

import "github.com/txsvc/txsvc"

func main() {
	txsvc.Main(
		txsvc.WithHandler("deposit", Deposit{}),
		txsvc.WithHandler("transfer", Transfer{}),
		txsvc.WithSelector("geo", NewGeo),
	)
}
