// Members of a foreign request that must not reach a provider: those that would send the call or its credential
// somewhere else, and those whose price the catalog does not know.
import { Problem } from '../../kernel/problem.ts';
import type { CatalogModel } from './catalog.ts';
import type { ProviderEntry } from './models-file.ts';

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

/** Throws a 400 or a 422 that names the member. `path` is what stands before it, such as `providerOptions.acme`. */
export function refuseMembers(body: object, provider: ProviderEntry, path = ''): void {
  for (const [name, value] of Object.entries(body) as [string, unknown][]) {
    const shown = path === '' ? name : `${path}.${name}`;
    const plain = name.toLowerCase().replace(/[-_]/g, '');
    if (addressesAndCredentials.has(plain)) {
      throw new Problem('bad_request', 'invalid_request', `The member ${shown} is refused: addresses and credentials of providers are configured on the server.`, {
        param: shown,
        details: [{ path: shown, message: 'is refused' }],
      });
    }
    if (value !== null && provider.unpriced_members.includes(name)) {
      throw new Problem('impossible', 'unpriced_member', `The member ${shown} is refused: its price at this provider is not known.`, { param: shown });
    }
    // Some servers merge the members of this one into the request.
    if (plain === 'extrabody' && typeof value === 'object' && value !== null) refuseMembers(value, provider, shown);
  }
}

// Tools that a provider runs on its own machines, and bills apart from tokens.
const pricedTools = /^(?:web_search|web_fetch|code_execution|code_interpreter|file_search|image_generation|computer_use_preview)/;

/** Throws a 422 for a tool that the provider would run at a price of its own. */
export function refusePricedTools(body: object, path = 'tools'): void {
  const { tools } = body as { tools?: unknown };
  if (!Array.isArray(tools)) return;
  for (const [index, tool] of tools.entries()) {
    const { type } = (tool ?? {}) as { type?: unknown };
    if (typeof type !== 'string' || !pricedTools.test(type)) continue;
    throw new Problem('impossible', 'unpriced_member', `The tool ${path}[${index}] is refused: what it costs at this provider is not known.`, { param: `${path}[${index}].type` });
  }
}

// Which kinds of providers have tools of their own that their packages hand on, and what the ids of these begin with.
const toolOwners: Partial<Record<ProviderEntry['kind'], string>> = { anthropic: 'anthropic.', google: 'google.' };
// Those that are billed by the use, run another model, or read what nobody has measured.
const unboundTools = /^[a-z]+\.(?:web_search|web_fetch|code_execution|google_search|enterprise_web_search|google_maps|url_context|file_search|vertex_rag_store|advisor|mcp)/;

/** Throws a 422 for a tool of a provider that the model's provider does not know, or whose use the catalog does not price. */
export function checkProviderTools({ id, by, rates }: Pick<CatalogModel, 'id' | 'by' | 'rates'>, tools: readonly { type: string; id?: string }[] = []): void {
  for (const [index, { type, id: toolId = '' }] of tools.entries()) {
    if (type !== 'provider') continue;
    const param = `tools[${index}].id`;
    const owner = toolOwners[by.kind];
    if (owner === undefined || !toolId.startsWith(owner)) {
      throw new Problem('impossible', 'unsupported_by_model', `The model ${id} does not know the tool ${toolId}.`, { param });
    }
    if (rates !== null && unboundTools.test(toolId)) {
      throw new Problem('impossible', 'unpriced_member', `The tool ${toolId} is refused: what it costs at this provider is not known.`, { param });
    }
  }
}
