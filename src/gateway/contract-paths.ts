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
 * IDs that a project's service cannot have: the first part of each path after `/v1/`, and names
 * reserved for later. A path of one part that is only read, such as `/v1/report`, leaves its name
 * to projects: their actions have two parts.
 */
export function reservedServiceIds(paths: Paths): ReadonlySet<string> {
  const parts = Object.entries(paths).flatMap(([path, item]) => {
    const [, name, rest] = /^\/v1\/([^/{]+)(\/.*)?$/.exec(path) ?? [];
    const isOnlyRead = rest === undefined && Object.keys(item).every((method) => method === 'get');
    return name === undefined || isOnlyRead ? [] : [name];
  });
  return new Set([...parts, 'directory', 'services']);
}
