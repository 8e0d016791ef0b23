// Members of a foreign request that must not reach a provider: those that would send the call or its credential
// somewhere else, and those whose price the catalog does not know.
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { ProviderEntry } from '../catalog/models-file.ts';

// Compared without case, hyphens and underscores, as libraries behind a provider may be as lenient.
const addressesAndCredentials = new Set([
  'apibase', 'apikey', 'apikeys', 'apitype', 'apiurl', 'apiversion', 'apiendpoint',
  'baseurl', 'baseuri', 'url', 'uri', 'endpoint', 'endpointurl', 'azureendpoint', 'host', 'proxy', 'proxyurl',
  'headers', 'extraheaders', 'defaultheaders', 'httpheaders', 'extraquery',
  'authorization', 'auth', 'bearer', 'bearertoken', 'token', 'accesstoken', 'secret', 'clientsecret', 'password',
  'credential', 'credentials', 'organization', 'azureadtoken', 'vertexcredentials',
  'awsaccesskeyid', 'awssecretaccesskey', 'awssessiontoken', 'awsbedrockruntimeendpoint',
  'customllmprovider',
]);

const plainOf = (name: string) => name.toLowerCase().replace(/[-_]/g, '');

/** Throws a 400 or a 422 that names the member. `path` is what stands before it, such as `providerOptions.acme`. */
export function refuseMembers(body: object, provider: ProviderEntry, path = ''): void {
  // Options of packages say in their own spelling what their formats say in another.
  const unpriced = new Set(path === '' ? provider.unpriced_members : provider.unpriced_members.map(plainOf));
  for (const [name, value] of Object.entries(body) as [string, unknown][]) {
    const shown = path === '' ? name : `${path}.${name}`;
    const plain = plainOf(name);
    if (addressesAndCredentials.has(plain)) {
      throw new Problem('bad_request', 'invalid_request', `The member ${shown} is refused: addresses and credentials of providers are configured on the server.`, {
        param: shown,
        details: [{ path: shown, message: 'is refused' }],
      });
    }
    if (value !== null && unpriced.has(path === '' ? name : plain)) {
      throw new Problem('impossible', 'unpriced_member', `The member ${shown} is refused: its price at this provider is not known.`, { param: shown });
    }
    // Some servers merge the members of this one into the request.
    if (plain === 'extrabody' && typeof value === 'object' && value !== null) refuseMembers(value, provider, shown);
  }
}

// Tools of the foreign formats that the caller runs itself, and that cost their tokens alone. All others run at the
// provider, which bills them apart or lets them read what nobody has measured.
const callersTools = /^(?:function|custom|namespace|tool_search|local_shell|apply_patch|bash_|text_editor_|memory_|computer(?!_use_preview))/;

interface ForeignTool {
  type?: unknown;
  environment?: { type?: unknown } | null;
}

function isCallersOwn(tool: ForeignTool): boolean {
  // Anthropic's tools have no type where they are the caller's.
  if (tool.type === undefined || tool.type === null) return true;
  return typeof tool.type === 'string' && (callersTools.test(tool.type) || (tool.type === 'shell' && tool.environment?.type === 'local'));
}

function toolBesides(body: object, isTaken: (tool: ForeignTool) => boolean): { path: string; type: string } | undefined {
  const { tools } = body as { tools?: unknown };
  const index = Array.isArray(tools) ? tools.findIndex((tool) => !isTaken((tool ?? {}) as ForeignTool)) : -1;
  return index < 0 ? undefined : { path: `tools[${index}].type`, type: String((tools as (ForeignTool | null)[])[index]?.type) };
}

/** Throws a 422 for a tool that the provider would run at a price of its own. */
export function refusePricedTools(body: object): void {
  const found = toolBesides(body, isCallersOwn);
  if (found !== undefined) throw unpricedTool(found.type, found.path);
}

function unpricedTool(name: string, param: string): Problem {
  return new Problem('impossible', 'unpriced_member', `The tool ${name} is refused: the provider runs it itself, and what that costs is not known. A model without a price takes it.`, { param });
}

/** Throws a 422 for a tool that chat completions of this model do not have, with the way that has it. */
export function checkChatTools({ by, rates }: Pick<CatalogModel, 'by' | 'rates'>, body: object): void {
  if (rates !== null) refusePricedTools(body);
  const speaksChat = by.formats.includes('chat');
  // What other servers of this format run themselves is theirs to say; OpenAI's own has two kinds.
  if (speaksChat && by.kind !== 'openai') return;
  const found = toolBesides(body, ({ type }) => type === undefined || type === 'function' || (speaksChat && type === 'custom'));
  if (found === undefined) return;
  const ways = [...(by.formats.includes('responses') ? ['/v1/ai/responses'] : []), ...(by.formats.includes('messages') ? ['/v1/ai/messages'] : []), ...(by.kind in toolOwners ? ['/v1/ai/stream'] : [])];
  const remedy = ways.length === 0 ? '' : ` The provider's own tools go by POST ${ways.join(' or ')}.`;
  throw new Problem('impossible', 'unsupported_by_model', `Chat completions of this model have no tools of the type ${found.type}.${remedy}`, { param: found.path });
}

// Which kinds of providers have tools of their own that their packages hand on, and what the ids of these begin with.
const toolOwners: Partial<Record<ProviderEntry['kind'], string>> = { openai: 'openai.', anthropic: 'anthropic.', google: 'google.' };
// Those that are billed by the use, run another model, or read what nobody has measured.
const unboundTools = /^[a-z]+\.(?:web_search|web_fetch|code_execution|google_search|enterprise_web_search|google_maps|url_context|file_search|vertex_rag_store|advisor|mcp)/;

/** Throws a 422 for a tool of a provider that the model's provider does not know, or whose use the catalog does not price. */
export function checkProviderTools({ id, by, rates }: Pick<CatalogModel, 'id' | 'by' | 'rates'>, tools: readonly { type: string; id?: string; args?: Record<string, unknown> }[] = []): void {
  for (const [index, { type, id: toolId = '', args }] of tools.entries()) {
    if (type !== 'provider') continue;
    const param = `tools[${index}].id`;
    const owner = toolOwners[by.kind];
    if (owner === undefined || !toolId.startsWith(owner)) {
      throw new Problem('impossible', 'unsupported_by_model', `The model ${id} does not know the tool ${toolId}.`, { param });
    }
    const isBound = by.kind === 'openai' ? isCallersOwn({ type: toolId.slice(owner.length), environment: args?.['environment'] as ForeignTool['environment'] }) : !unboundTools.test(toolId);
    if (rates !== null && !isBound) throw unpricedTool(toolId, param);
  }
}
