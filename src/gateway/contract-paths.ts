// Reads facts about paths out of the contract document.

type Paths = Readonly<Record<string, object>>;

/** The paths that pages of a Bureau's origins may call: those of operations with `x-login-origins`. */
export function loginPaths(paths: Paths): ReadonlySet<string> {
  const isLogin = (item: object) =>
    Object.values(item).some(
      (operation: { 'x-login-origins'?: boolean }) => operation['x-login-origins'] === true,
    );
  return new Set(Object.entries(paths).flatMap(([path, item]) => (isLogin(item) ? [path] : [])));
}

/**
 * IDs that a project's service cannot have: the first part of each path after
 * `/v1/`, and names reserved for later.
 */
export function reservedServiceIds(paths: Paths): ReadonlySet<string> {
  const parts = Object.keys(paths).flatMap((path) => /^\/v1\/([^/{]+)/.exec(path)?.[1] ?? []);
  return new Set([...parts, 'directory', 'services', 'audit']);
}
