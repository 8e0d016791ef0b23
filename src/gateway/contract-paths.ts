// Reads facts about paths out of the contract document.

type Paths = Readonly<Record<string, object>>;

/** The paths that pages of a Bureau's origins may call: the paths of operations with `x-login-origins`. */
export function loginPaths(paths: Paths): ReadonlySet<string> {
  const isLogin = (pathItem: object) =>
    Object.values(pathItem).some(
      (operation: { 'x-login-origins'?: boolean }) => operation['x-login-origins'] === true,
    );
  return new Set(Object.entries(paths).flatMap(([path, pathItem]) => (isLogin(pathItem) ? [path] : [])));
}

/**
 * IDs that a project's service cannot have: the first segment after `/v1/` of each path, and names reserved
 * for later. A path of one segment that has only a GET, such as `/v1/report`, does not reserve its name: the
 * paths of a project's actions have at least two segments, so they never collide with it.
 */
export function reservedServiceIds(paths: Paths): ReadonlySet<string> {
  const names = Object.entries(paths).flatMap(([path, pathItem]) => {
    const [, name, rest] = /^\/v1\/([^/{]+)(\/.*)?$/.exec(path) ?? [];
    const hasOnlyGet = rest === undefined && Object.keys(pathItem).every((method) => method === 'get');
    return name === undefined || hasOnlyGet ? [] : [name];
  });
  return new Set([...names, 'directory', 'services']);
}
