package devstack

import "context"

// For the tests of package devstack_test.
var (
	ChildrenOf      = childrenOf
	Lives           = lives
	RemoveAbandoned = removeAbandoned
)

// InstalledCache fetches missing binaries, and returns their cache.
func InstalledCache(ctx context.Context) (string, error) {
	o, err := Options{Dir: "/"}.withDefaults()
	if err != nil {
		return "", err
	}
	owner, err := clusterOwner(o.PostgresUser)
	if err != nil {
		return "", err
	}
	java, version, err := findJava(ctx)
	if err != nil {
		return "", err
	}
	if _, err := install(ctx, o, java, version, owner); err != nil {
		return "", err
	}
	return cacheDir("", owner)
}
