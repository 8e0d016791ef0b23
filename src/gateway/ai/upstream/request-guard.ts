// Members of a foreign request that must not reach a provider: those that would send the call or its credential
// somewhere else, those whose price the catalog does not know, and other forms of those that the gateway reads.
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { ProviderEntry } from '../catalog/models-file.ts';
import { foldName } from './member-names.ts';

// By their folded names, as libraries behind a provider may be lenient.
const addressesAndCredentials = new Set([
  'apibase',
  'apikey',
  'apikeys',
  'apitype',
  'apiurl',
  'apiversion',
  'apiendpoint',
  'baseurl',
  'baseuri',
  'url',
  'uri',
  'endpoint',
  'endpointurl',
  'azureendpoint',
  'host',
  'proxy',
  'proxyurl',
  'headers',
  'extraheaders',
  'defaultheaders',
  'httpheaders',
  'extraquery',
  'authorization',
  'auth',
  'bearer',
  'bearertoken',
  'token',
  'accesstoken',
  'secret',
  'clientsecret',
  'password',
  'credential',
  'credentials',
  'organization',
  'azureadtoken',
  'vertexcredentials',
  'awsaccesskeyid',
  'awssecretaccesskey',
  'awssessiontoken',
  'awsbedrockruntimeendpoint',
  'customllmprovider',
]);

// Servers that stand before several models (OpenRouter, LiteLLM and the like) read these to choose another model or
// another provider, to change what they cost, or to drop members such as the output limit.
const routing = new Set([
  'models',
  'modellist',
  'modelinfo',
  'modelgroup',
  'basemodel',
  'plugins',
  'provider',
  'provideroptions',
  'gateway',
  'preset',
  'route',
  'routersettings',
  'userconfig',
  'fallbacks',
  'fallbackmodels',
  'defaultfallbacks',
  'disablefallbacks',
  'contextwindowfallbacks',
  'contextwindowfallbackdict',
  'contentpolicyfallbacks',
  'specificdeployment',
  'deployment',
  'deploymentid',
  'dropparams',
  'additionaldropparams',
  'modifyparams',
  'allowedopenaiparams',
  'inputcostpertoken',
  'outputcostpertoken',
  'inputcostpersecond',
  'outputcostpersecond',
]);
const routingPrefixes = /^(?:mock|litellm)/;

// The members that the gateway reads, or whose absence it relies on, by their folded names.
const limitMembers = ['max_tokens', 'max_completion_tokens', 'max_output_tokens'];
const readMembers = new Map(
  [
    'model',
    'messages',
    'input',
    'prompt',
    'query',
    'documents',
    'system',
    'instructions',
    'tools',
    'stream',
    'stream_options',
    'n',
    ...limitMembers,
    'reasoning_effort',
    'reasoning',
    'output_config',
    'thinking',
    'previous_response_id',
    'conversation',
    'background',
  ].map((name) => [foldName(name), name]),
);
const readWithin: Readonly<Record<string, string>> = {
  stream_options: 'include_usage',
  reasoning: 'effort',
  output_config: 'effort',
};

// Other names under which servers take the model, the number of answers and the output limit.
const otherNames = new Map(
  Object.entries({
    engine: 'model',
    modelid: 'model',
    modelname: 'model',
    bestof: 'n',
    numreturnsequences: 'n',
    candidatecount: 'n',
    numgenerations: 'n',
    numcompletions: 'n',
    npredict: 'max_tokens',
    numpredict: 'max_tokens',
    maxnewtokens: 'max_tokens',
    maxgeneratedtokens: 'max_tokens',
    maxgenlen: 'max_tokens',
    maxlength: 'max_tokens',
    maxtokenstosample: 'max_tokens',
  }),
);

/** Where the members stand. */
export interface GuardOptions {
  /** What stands before the members, such as `providerOptions.acme`; empty at the top of a foreign request. */
  path?: string;
  /** The members that limit the output in the format of the request; absent where there are none. */
  limits?: readonly string[];
  /** Whether a server may merge the members into the request, over those of its top. */
  isMerged?: boolean;
}

/** Throws a 400 or a 422 that names the member. */
export function refuseUnsafeMembers(body: object, provider: ProviderEntry, place: GuardOptions = {}): void {
  const { path = '', isMerged = false } = place;
  // Options of packages have their own names for members of the request.
  const isRequest = path === '';
  const unpriced = new Set(provider.unpriced_members.map(foldName));
  const seen = new Map<string, string>();
  for (const [name, value] of Object.entries(body) as [string, unknown][]) {
    const memberPath = isRequest ? name : `${path}.${name}`;
    const folded = foldName(name);
    if (addressesAndCredentials.has(folded)) throw refusedAddress(memberPath);
    if (value !== null && unpriced.has(folded))
      throw unpricedMember(memberPath, 'its price at this provider is not known');
    if (value !== null && (routing.has(folded) || routingPrefixes.test(folded)))
      throw unpricedMember(memberPath, 'it can send the call to another model or at another price');
    if (isRequest || isMerged) refuseForms(name, memberPath, { provider, ...place });
    const twin = seen.get(folded);
    if (twin !== undefined)
      throw unpricedMember(memberPath, `it is another form of ${twin}, which the request has already`);
    seen.set(folded, name);
    if (isRequest) refuseFormsWithin(name, value);
    // Some servers merge the members of this one into the request.
    if (folded === 'extrabody' && typeof value === 'object' && value !== null)
      refuseUnsafeMembers(value, provider, { path: memberPath, isMerged: true });
  }
}

function refuseForms(
  name: string,
  shown: string,
  { provider, limits = [], isMerged = false }: GuardOptions & { provider: ProviderEntry },
): void {
  const ownLimit = provider.output_limit_member;
  if (name === ownLimit && !isMerged) return;
  const folded = foldName(name);
  const read =
    readMembers.get(folded) ??
    otherNames.get(folded) ??
    (ownLimit !== undefined && folded === foldName(ownLimit) ? ownLimit : undefined);
  if (read !== undefined && (isMerged || read !== name))
    throw unpricedMember(shown, `a provider may take it for ${read}; send ${read} at the top of the request`);
  if (limits.length > 0 && limitMembers.includes(name) && !limits.includes(name))
    throw unpricedMember(shown, `the output limit of this format is ${limits[0]}`);
}

function refuseFormsWithin(name: string, value: unknown): void {
  const read = Object.hasOwn(readWithin, name) ? readWithin[name] : undefined;
  if (read === undefined || typeof value !== 'object' || value === null) return;
  const form = Object.keys(value).find((inner) => inner !== read && foldName(inner) === foldName(read));
  if (form !== undefined)
    throw unpricedMember(`${name}.${form}`, `a provider may take it for ${read}; send ${read}`);
}

function refusedAddress(shown: string): Problem {
  return new Problem(
    'bad_request',
    'invalid_request',
    `The member ${shown} is refused: addresses and credentials of providers are configured on the server.`,
    {
      param: shown,
      details: [{ path: shown, message: 'is refused' }],
    },
  );
}

function unpricedMember(shown: string, reason: string): Problem {
  return new Problem('impossible', 'unpriced_member', `The member ${shown} is refused: ${reason}.`, {
    param: shown,
  });
}

// Tools of the foreign formats that the caller runs itself, and that cost their tokens alone. All others run at the
// provider, which bills them apart or lets them read what nobody has measured.
const callersTools =
  /^(?:function|custom|namespace|tool_search|local_shell|apply_patch|bash_|text_editor_|memory_|computer(?!_use_preview))/;

interface ForeignTool {
  type?: unknown;
  /** Of a namespace, and of an item that answers a search for tools. */
  tools?: unknown;
  environment?: { type?: unknown } | null;
}

function isCallersOwn(tool: ForeignTool): boolean {
  // Anthropic's tools have no type where they are the caller's.
  if (tool.type === undefined || tool.type === null) return true;
  return (
    typeof tool.type === 'string' &&
    (callersTools.test(tool.type) || (tool.type === 'shell' && tool.environment?.type === 'local'))
  );
}

function toolBesides(
  body: object,
  isTaken: (tool: ForeignTool) => boolean,
): { path: string; type: string } | undefined {
  const { tools } = body as { tools?: unknown };
  const index = Array.isArray(tools) ? tools.findIndex((tool) => !isTaken((tool ?? {}) as ForeignTool)) : -1;
  return index < 0
    ? undefined
    : { path: `tools[${index}].type`, type: String((tools as (ForeignTool | null)[])[index]?.type) };
}

/** Throws a 422 for a tool that the provider would run at a price of its own, also where another tool or an item brings it. */
export function refusePricedTools(body: object): void {
  const { tools, input } = body as { tools?: unknown; input?: unknown };
  const lists: [unknown, string][] = [
    [tools, 'tools'],
    ...entriesOf(input).map(([index, item]): [unknown, string] => [item.tools, `input[${index}].tools`]),
  ];
  for (let list = lists.pop(); list !== undefined; list = lists.pop()) {
    const [nested, path] = list;
    for (const [index, tool] of entriesOf(nested)) {
      if (!isCallersOwn(tool)) throw unpricedTool(String(tool.type), `${path}[${index}].type`);
      lists.push([tool.tools, `${path}[${index}].tools`]);
    }
  }
}

// The items of a list by their places; none for what is no list.
function entriesOf(value: unknown): [number, ForeignTool][] {
  return Array.isArray(value)
    ? value.map((item: unknown, index): [number, ForeignTool] => [index, (item ?? {}) as ForeignTool])
    : [];
}

function unpricedTool(name: string, param: string): Problem {
  return new Problem(
    'impossible',
    'unpriced_member',
    `The tool ${name} is refused: the provider runs it itself, and what that costs is not known. A model without a price takes it.`,
    { param },
  );
}

/** Throws a 422 for a tool that chat completions of this model do not have, with the way that has it. */
export function checkChatTools(
  { providerEntry: by, rates }: Pick<CatalogModel, 'providerEntry' | 'rates'>,
  body: object,
): void {
  if (rates !== null) refusePricedTools(body);
  const speaksChat = by.formats.includes('chat');
  // What other servers of this format run themselves is theirs to say; OpenAI's own has two kinds.
  if (speaksChat && by.kind !== 'openai') return;
  const found = toolBesides(
    body,
    ({ type }) => type === undefined || type === 'function' || (speaksChat && type === 'custom'),
  );
  if (found === undefined) return;
  const ways = [
    ...(by.formats.includes('responses') ? ['/v1/ai/responses'] : []),
    ...(by.formats.includes('messages') ? ['/v1/ai/messages'] : []),
    ...(by.kind in toolOwners ? ['/v1/ai/stream'] : []),
  ];
  const remedy = ways.length === 0 ? '' : ` The provider's own tools go by POST ${ways.join(' or ')}.`;
  throw new Problem(
    'impossible',
    'unsupported_by_model',
    `Chat completions of this model have no tools of the type ${found.type}.${remedy}`,
    { param: found.path },
  );
}

// Which kinds of providers have tools of their own that their packages hand on, and what the ids of these begin with.
const toolOwners: Partial<Record<ProviderEntry['kind'], string>> = {
  openai: 'openai.',
  anthropic: 'anthropic.',
  google: 'google.',
};
// Those that are billed by the use, run another model, or read what nobody has measured.
const unboundTools =
  /^[a-z]+\.(?:web_search|web_fetch|code_execution|google_search|enterprise_web_search|google_maps|url_context|file_search|vertex_rag_store|advisor|mcp)/;

/** Throws a 422 for a tool of a provider that the model's provider does not know, or whose use the catalog does not price. */
export function checkProviderTools(
  { id, providerEntry: by, rates }: Pick<CatalogModel, 'id' | 'providerEntry' | 'rates'>,
  tools: readonly { type: string; id?: string; args?: Record<string, unknown> }[] = [],
): void {
  for (const [index, { type, id: toolId = '', args }] of tools.entries()) {
    if (type !== 'provider') continue;
    const param = `tools[${index}].id`;
    const owner = toolOwners[by.kind];
    if (owner === undefined || !toolId.startsWith(owner)) {
      throw new Problem(
        'impossible',
        'unsupported_by_model',
        `The model ${id} does not know the tool ${toolId}.`,
        { param },
      );
    }
    const isBound =
      by.kind === 'openai'
        ? isCallersOwn({
            type: toolId.slice(owner.length),
            environment: args?.['environment'] as ForeignTool['environment'],
          })
        : !unboundTools.test(toolId);
    if (rates !== null && !isBound) throw unpricedTool(toolId, param);
  }
}
