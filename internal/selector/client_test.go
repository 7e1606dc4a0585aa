package selector

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(stacktest.With(m)) }

// The class of the RocketMQ client itself picks, from the Maven artifacts that the stack runs on.
func TestJavaHashEqualsTheJavaClient(t *testing.T) {
	cases := javaCases(javaKeys)
	classpath := stacktest.Shared(t).Classpath
	compareWithJava(t, cases, askJava(t, cases, "-cp", classpath, "testdata/JavaHash.java", "client"))
}
