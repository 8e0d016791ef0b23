// Refuses tools in a request that the provider would run itself at a price the catalog does not know, and tools that the
// model's route does not take.
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import type { ProviderEntry } from '../catalog/models-file.ts';

// Types of tools that the caller runs, so that they cost only their tokens. The provider runs all others: it bills them
// separately, or they read input of unknown size.
const callerTools =
  /^(?:function|custom|namespace|tool_search|local_shell|apply_patch|bash_|text_editor_|memory_|computer(?!_use_preview))/;

interface RequestTool {
  type?: unknown;
  /** The tools of a namespace, and of an item with the result of a tool search. */
  tools?: unknown;
  environment?: { type?: unknown } | null;
}

function isRunByCaller(tool: RequestTool): boolean {
  // In Anthropic's format, tools of the caller may have no type.
  if (tool.type === undefined || tool.type === null) return true;
  return (
    typeof tool.type === 'string' &&
    (callerTools.test(tool.type) || (tool.type === 'shell' && tool.environment?.type === 'local'))
  );
}

function findOtherTool(
  body: object,
  isAllowed: (tool: RequestTool) => boolean,
): { path: string; type: string } | undefined {
  const { tools } = body as { tools?: unknown };
  const index = Array.isArray(tools)
    ? tools.findIndex((tool) => !isAllowed((tool ?? {}) as RequestTool))
    : -1;
  return index < 0
    ? undefined
    : { path: `tools[${index}].type`, type: String((tools as (RequestTool | null)[])[index]?.type) };
}

/** Throws a 422 for a tool that the provider runs at an unknown price, including tools nested in tools and input items. */
export function refusePricedTools(body: object): void {
  const { tools, input } = body as { tools?: unknown; input?: unknown };
  refusePricedIn(tools, 'tools');
  if (!Array.isArray(input)) return;
  // The input of embeddings may be a million token ids: nothing is allocated per item.
  for (let index = 0; index < input.length; index += 1) {
    const item: unknown = input[index];
    if (typeof item === 'object' && item !== null && 'tools' in item)
      refusePricedIn(item.tools, `input[${index}].tools`);
  }
}

// The depth of nested tools was bounded when the body was parsed.
function refusePricedIn(tools: unknown, path: string): void {
  if (!Array.isArray(tools)) return;
  tools.forEach((tool: RequestTool | null, index) => {
    if (tool === null) return;
    if (!isRunByCaller(tool)) throw unpricedTool(String(tool.type), `${path}[${index}].type`);
    refusePricedIn(tool.tools, `${path}[${index}].tools`);
  });
}

function unpricedTool(name: string, param: string): Problem {
  return new Problem(
    'impossible',
    'unpriced_member',
    `The tool ${name} is refused: the provider runs it itself, and what that costs is not known. A model without a price takes it.`,
    { param },
  );
}

/** Throws a 422 for a tool that chat completions of this model do not take, and names the routes that take it. */
export function checkChatTools(
  { providerEntry, rates }: Pick<CatalogModel, 'providerEntry' | 'rates'>,
  body: object,
): void {
  if (rates !== null) refusePricedTools(body);
  const takesChat = providerEntry.formats.includes('chat');
  // OpenAI has two types of tools in this format. Other servers check theirs themselves.
  if (takesChat && providerEntry.kind !== 'openai') return;
  const otherTool = findOtherTool(
    body,
    ({ type }) => type === undefined || type === 'function' || (takesChat && type === 'custom'),
  );
  if (otherTool === undefined) return;
  const routes = [
    ...(providerEntry.formats.includes('responses') ? ['/v1/ai/responses'] : []),
    ...(providerEntry.formats.includes('messages') ? ['/v1/ai/messages'] : []),
    ...(providerEntry.kind in toolIdPrefixes ? ['/v1/ai/stream'] : []),
  ];
  const remedy = routes.length === 0 ? '' : ` The provider's own tools go by POST ${routes.join(' or ')}.`;
  throw new Problem(
    'impossible',
    'unsupported_by_model',
    `Chat completions of this model take no tools of the type ${otherTool.type}.${remedy}`,
    { param: otherTool.path },
  );
}

// Prefixes of the ids of provider tools, for the kinds of providers whose SDK packages have such tools.
const toolIdPrefixes: Partial<Record<ProviderEntry['kind'], string>> = {
  openai: 'openai.',
  anthropic: 'anthropic.',
  google: 'google.',
};
// Provider tools that are billed by use, run another model, or read input of unknown size.
const unpricedTools =
  /^[a-z]+\.(?:web_search|web_fetch|code_execution|google_search|enterprise_web_search|google_maps|url_context|file_search|vertex_rag_store|advisor|mcp)/;

/** Throws a 422 for a provider tool that the model's provider does not have, or whose use has no known price. */
export function checkProviderTools(
  { id, providerEntry, rates }: Pick<CatalogModel, 'id' | 'providerEntry' | 'rates'>,
  tools: readonly { type: string; id?: string; args?: Record<string, unknown> }[] = [],
): void {
  for (const [index, { type, id: toolId = '', args }] of tools.entries()) {
    if (type !== 'provider') continue;
    const param = `tools[${index}].id`;
    const prefix = toolIdPrefixes[providerEntry.kind];
    if (prefix === undefined || !toolId.startsWith(prefix)) {
      throw new Problem(
        'impossible',
        'unsupported_by_model',
        `The model ${id} does not know the tool ${toolId}.`,
        { param },
      );
    }
    const isPriced =
      providerEntry.kind === 'openai'
        ? isRunByCaller({
            type: toolId.slice(prefix.length),
            environment: args?.['environment'] as RequestTool['environment'],
          })
        : !unpricedTools.test(toolId);
    if (rates !== null && !isPriced) throw unpricedTool(toolId, param);
  }
}
