package remoting

// Request codes (RequestCode of RocketMQ).
const (
	codePull             = 11
	codeQuery            = 12
	codeUpdateTopic      = 17
	codeSearchOffset     = 29
	codeMaxOffset        = 30
	codeMinOffset        = 31
	codeView             = 33
	codeHeartbeat        = 34
	codeUnregister       = 35
	codeEndTransaction   = 37
	codeCheckTransaction = 39 // from the broker
	codeRoute            = 105
	codeClusterInfo      = 106
	codeDeleteTopic      = 215
	codeForgetTopic      = 216 // at a name server
	codeSendV2           = 310
	codeSendBatch        = 320
	codeTopicConfig      = 351
)
