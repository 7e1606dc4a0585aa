package devstack

import "context"

// For the tests that look from outside.
var (
	ChildrenOf      = childrenOf
	Lives           = lives
	RemoveAbandoned = removeAbandoned
)

// InstalledCache fetches the binaries, where they are missing, and returns the cache
// that holds them.
func InstalledCache(ctx context.Context) (string, error) {
	o, err := Options{Dir: "/"}.withDefaults()
	if err != nil {
		return "", err
	}
	owner, err := clusterOwner(o.PostgresUser)
	if err != nil {
		return "", err
	}
	java, err := findJava(ctx)
	if err != nil {
		return "", err
	}
	if _, err := install(ctx, o, java, owner); err != nil {
		return "", err
	}
	return cacheDir("", owner)
}
