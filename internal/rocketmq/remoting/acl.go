package remoting

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the protocol's algorithm
	"encoding/base64"
	"slices"
	"strings"
)

// Names of the fields that carry a signature (SessionCredentials of RocketMQ).
const (
	fieldAccessKey = "AccessKey"
	fieldSignature = "Signature"
)

// credentials sign requests for brokers with access control (ACL 1.0 and 2.0).
type credentials struct{ accessKey, secretKey string }

// sign returns the request's values with AccessKey and Signature added: the
// Base64 of HMAC-SHA1 over all values in the order of their keys, then the body
// (AclClientRPCHook and AclUtils of RocketMQ).
func (c credentials) sign(h header, body []byte) fieldList {
	fields := slices.Clone(collectFields(h))
	fields = slices.DeleteFunc(fields, func(f Field) bool { return f.Value == "" })
	fields = append(fields, Field{Key: fieldAccessKey, Value: c.accessKey})
	slices.SortFunc(fields, func(a, b Field) int { return strings.Compare(a.Key, b.Key) })
	mac := hmac.New(sha1.New, []byte(c.secretKey))
	for i := range fields {
		mac.Write([]byte(fields[i].Value))
	}
	mac.Write(body)
	signature := base64.StdEncoding.EncodeToString(mac.Sum(nil))
	return append(fields, Field{Key: fieldSignature, Value: signature})
}
