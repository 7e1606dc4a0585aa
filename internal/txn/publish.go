package txn

// SendStatus says how safely the broker has stored a message, in RocketMQ's words. With each of them the message is
// stored, and consumers see it. Only with SendOK it is as safe as the broker's configuration promises.
type SendStatus string

// The statuses with which a broker accepts a message.
const (
	SendOK            SendStatus = "SEND_OK"
	FlushDiskTimeout  SendStatus = "FLUSH_DISK_TIMEOUT"
	FlushSlaveTimeout SendStatus = "FLUSH_SLAVE_TIMEOUT"
	SlaveNotAvailable SendStatus = "SLAVE_NOT_AVAILABLE"
)
