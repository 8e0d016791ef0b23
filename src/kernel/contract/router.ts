// Matches method and path to an operation. A literal path of the contract claims all its spellings
// and methods, so that none of them matches a template such as `/v1/{service}/{action}`.
import { Problem } from '../problem.ts';

/** A path of the contract with the operations on it. */
export interface Route<Operation> {
  /** The path as the contract writes it, such as `/v1/ai/models/{model_id}`. */
  template: string;
  /** The operations by HTTP method in lower case. */
  operations: ReadonlyMap<string, Operation>;
  /** The parameter that matches the whole rest of the path, including slashes. */
  spansSlashes?: string;
}

export type RouteMatch<Operation> =
  | { outcome: 'found'; operation: Operation; params: Record<string, string> }
  | { outcome: 'method_not_allowed'; allow: string; operations: ReadonlyMap<string, Operation> }
  | { outcome: 'not_found' };

export interface Router<Operation> {
  /**
   * `path` is the raw request path without its query. Throws a 400 Problem for a path that cannot be decoded.
   */
  match(method: string, path: string): RouteMatch<Operation>;
}

interface Segment {
  literal: string | null;
  name: string;
  /** Text after the parameter in the same segment, such as `:generateContent`. */
  suffix: string;
}

/** A route with its path in segments. */
interface Template<Operation> {
  route: Route<Operation>;
  segments: Segment[];
  allow: string;
}

const noParams: Record<string, string> = Object.freeze(Object.create(null) as Record<string, string>);

export function createRouter<Operation>(routes: readonly Route<Operation>[]): Router<Operation> {
  const literals = new Map<string, Template<Operation>>();
  const literalPaths = new Set<string>();
  const templates: Template<Operation>[] = [];

  for (const route of routes) {
    const template = { route, segments: segmentsOf(route.template), allow: allowOf(route) };
    if (!route.template.includes('{')) {
      literals.set(route.template, template);
      literalPaths.add(toCanonicalPath(route.template));
    } else {
      templates.push(template);
    }
  }
  templates.sort(bySpecificity);

  return {
    match(method, path) {
      const literal = literals.get(path);
      if (literal) return resolve(literal, method, () => noParams);
      refuseUndecodable(path);
      const canonicalPath = toCanonicalPath(path);
      const parts = partsOf(path);
      if (literalPaths.has(canonicalPath)) {
        refuseInvalidName(templates, canonicalPath, parts);
        return { outcome: 'not_found' };
      }
      // An empty segment (a double or a trailing slash) is another spelling of a path and never a name.
      if (path[0] !== '/' || parts.includes('')) return { outcome: 'not_found' };
      const template = templates.find((candidate) => matchesSegments(candidate, parts));
      if (template === undefined) return { outcome: 'not_found' };
      if (canonicalPath !== path && isMoreSpecific(canonicalPath, template, templates))
        return { outcome: 'not_found' };
      return resolve(template, method, () => paramsOf(template, parts));
    },
  };
}

function resolve<Operation>(
  template: Template<Operation>,
  method: string,
  params: () => Record<string, string>,
): RouteMatch<Operation> {
  const { operations } = template.route;
  const operation = operations.get(method) ?? (method === 'head' ? operations.get('get') : undefined);
  if (operation === undefined) return { outcome: 'method_not_allowed', allow: template.allow, operations };
  return { outcome: 'found', operation, params: params() };
}

/**
 * Throws a 400 for an invalid name below a list, such as `/v1/ai/models/%2e`, whose canonical path is
 * that of the list: an error that names the parameter is more specific than a 404.
 */
function refuseInvalidName<Operation>(
  templates: readonly Template<Operation>[],
  listPath: string,
  parts: string[],
): void {
  if (parts.includes('')) return;
  const child = templates.find(
    (candidate) => candidate.route.template.startsWith(`${listPath}/`) && matchesSegments(candidate, parts),
  );
  if (child) paramsOf(child, parts);
}

/**
 * Whether the canonical path matches a more specific template than the path itself: other spellings
 * of a template's literal segments count as that template, as with a literal path.
 */
function isMoreSpecific<Operation>(
  canonicalPath: string,
  template: Template<Operation>,
  templates: readonly Template<Operation>[],
): boolean {
  const parts = partsOf(canonicalPath);
  const index = templates.findIndex((candidate) => matchesSegments(candidate, parts));
  return index >= 0 && index < templates.indexOf(template);
}

function partsOf(path: string): string[] {
  return path.split('/').slice(1);
}

function segmentsOf(template: string): Segment[] {
  return partsOf(template).map((part) => {
    const [, name, suffix = ''] = /^\{(\w+)\}(:\w+)?$/.exec(part) ?? [];
    return name === undefined ? { literal: part, name: '', suffix } : { literal: null, name, suffix };
  });
}

function allowOf<Operation>(route: Route<Operation>): string {
  const methods = [...route.operations.keys()].map((method) => method.toUpperCase());
  if (methods.includes('GET') && !methods.includes('HEAD'))
    methods.splice(methods.indexOf('GET') + 1, 0, 'HEAD');
  return [...methods, 'OPTIONS'].join(', ');
}

// The leftmost difference decides: a literal segment before a parameter, a parameter
// with a suffix before one without, a longer template before a shorter.
function bySpecificity(a: { segments: Segment[] }, b: { segments: Segment[] }): number {
  for (const [index, segment] of a.segments.entries()) {
    const otherSegment = b.segments[index];
    if (!otherSegment) return -1;
    if ((segment.literal === null) !== (otherSegment.literal === null))
      return segment.literal === null ? 1 : -1;
    if (segment.suffix.length !== otherSegment.suffix.length)
      return otherSegment.suffix.length - segment.suffix.length;
  }
  return a.segments.length < b.segments.length ? 1 : 0;
}

function matchesSegments(
  { segments, route }: { segments: Segment[]; route: { spansSlashes?: string } },
  parts: string[],
): boolean {
  const hasMatchingLength =
    route.spansSlashes === undefined ? parts.length === segments.length : parts.length >= segments.length;
  if (!hasMatchingLength) return false;
  return segments.every(({ literal, suffix }, index) => {
    if (literal !== null) return literal === parts[index];
    // A parameter that spans slashes is the last segment, so its suffix ends the path.
    return suffix === '' || partWithSuffix(parts, index, route.spansSlashes)?.endsWith(suffix) === true;
  });
}

function partWithSuffix(
  parts: string[],
  index: number,
  spansSlashes: string | undefined,
): string | undefined {
  return spansSlashes === undefined ? parts[index] : parts.at(-1);
}

function paramsOf<Operation>(template: Template<Operation>, parts: string[]): Record<string, string> {
  // Without a prototype, so that a parameter named `constructor` exists only if it was sent.
  const params = Object.create(null) as Record<string, string>;
  for (const [index, { literal, name, suffix }] of template.segments.entries()) {
    if (literal !== null) continue;
    const spansSlashes = name === template.route.spansSlashes;
    const raw = spansSlashes ? parts.slice(index).join('/') : (parts[index] ?? '');
    params[name] = decodeParameter(name, raw.slice(0, raw.length - suffix.length), spansSlashes);
  }
  return params;
}

function decodeParameter(name: string, raw: string, spansSlashes: boolean): string {
  const value = raw.includes('%') ? decodeURIComponent(raw) : raw;
  const pieces = spansSlashes ? value.split('/') : [value];
  const isUnsafe = pieces.some(
    (piece) => piece === '' || piece === '.' || piece === '..' || unsafeInSegment.test(piece),
  );
  if (isUnsafe) {
    const message = 'holds characters or segments that a path may not have';
    throw new Problem('bad_request', 'invalid_path', `The path parameter \`${name}\` ${message}.`, {
      param: name,
      details: [{ path: name, message }],
    });
  }
  return value;
}

// Control characters, both slashes and lone surrogates: names do not need them, and attacks use them.
const unsafeInSegment = /[\u0000-\u001f\u007f-\u009f/\\\u2028\u2029]|\p{Surrogate}/u;

function refuseUndecodable(path: string): void {
  if (!path.includes('%')) return;
  try {
    decodeURIComponent(path);
  } catch (cause) {
    throw new Problem(
      'bad_request',
      'invalid_path',
      'The path contains a percent-encoding that cannot be decoded.',
      { cause },
    );
  }
}

/**
 * The canonical form of all spellings of a path: decoded as often as it is encoded, folded in case and
 * compatibility, without control characters, dot segments, path parameters and superfluous slashes.
 */
function toCanonicalPath(path: string): string {
  if (plainPath.test(path) && !path.includes('//') && !path.includes('/.')) return trimSlash(path);
  let text = path;
  // Four rounds decode any nested encoding that a proxy could remove; each further level
  // costs the sender 2 bytes per character.
  for (let round = 0; round < 4 && text.includes('%'); round += 1) {
    const decodedText = text.replace(/(?:%[0-9a-f]{2})+/gi, (run) =>
      Buffer.from(run.replaceAll('%', ''), 'hex').toString('utf8'),
    );
    if (decodedText === text) break;
    text = decodedText;
  }
  const foldedText = text
    .normalize('NFKD')
    .toLowerCase()
    .replace(/[\p{Cc}\p{Cf}\p{Z}\p{M}]/gu, '')
    .replaceAll('\\', '/');
  const segments: string[] = [];
  for (const part of foldedText.split('/')) {
    const name = part.split(';', 1)[0] ?? '';
    if (name === '..') segments.pop();
    else if (name !== '' && name !== '.') segments.push(name);
  }
  return `/${segments.join('/')}`;
}

const plainPath = /^[a-z0-9_/.-]*$/;

function trimSlash(path: string): string {
  return path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path;
}
