// Rejects tools that the provider would run itself at a price that the catalog does not have, and
// tools that the model's route does not support.
import { Problem } from '../../../kernel/problem.ts';
import type { CatalogModel } from '../catalog/catalog.ts';
import { adapterOf } from '../providers/adapters.ts';
import { isRunByCaller, type RequestTool } from '../providers/adapter/unpriced-tools.ts';
import { readString } from '../formats/translation/members.ts';
import { unsupportedMember } from '../hub/problems.ts';

function findUnsupportedTool(
  body: object,
  isAllowed: (tool: RequestTool) => boolean,
): { path: string; type: string } | undefined {
  const { tools } = body as { tools?: unknown };
  if (!Array.isArray(tools)) return undefined;
  const index = tools.findIndex((tool) => !isAllowed((tool ?? {}) as RequestTool));
  if (index < 0) return undefined;
  const path = `tools[${index}].type`;
  return { path, type: readString((tools[index] as RequestTool | null)?.type, path) };
}

/**
 * Throws a 422 for a tool that the provider runs at an unknown price, including
 * tools nested in tools and input items.
 */
export function refusePricedTools(body: object): void {
  const { tools, input, instructions } = body as Record<'tools' | 'input' | 'instructions', unknown>;
  refusePricedIn(tools, 'tools');
  refusePricedInItems(instructions, 'instructions');
  refusePricedInItems(input, 'input');
}

function refusePricedInItems(items: unknown, path: string): void {
  if (!Array.isArray(items)) return;
  // The input of embeddings may be a million token ids, so nothing is allocated for each item.
  for (let index = 0; index < items.length; index += 1) {
    const item: unknown = items[index];
    if (typeof item === 'object' && item !== null && 'tools' in item)
      refusePricedIn(item.tools, `${path}[${index}].tools`);
  }
}

// The depth of nested tools was bounded when the body was parsed.
function refusePricedIn(tools: unknown, path: string): void {
  if (!Array.isArray(tools)) return;
  tools.forEach((tool: RequestTool | null, index) => {
    if (tool === null) return;
    const typePath = `${path}[${index}].type`;
    if (!isRunByCaller(tool)) throw unpricedTool(readString(tool.type, typePath), typePath);
    refusePricedIn(tool.tools, `${path}[${index}].tools`);
  });
}

function unpricedTool(name: string, param: string): Problem {
  return new Problem(
    'impossible',
    'unpriced_member',
    `The tool ${name} is refused: the provider runs it itself, and what that costs is not known. ` +
      'A model without a price takes it.',
    { param },
  );
}

/**
 * Throws a 422 for a tool that chat completions of this model do not support, and
 * names the routes that support it.
 */
export function checkChatTools(model: Pick<CatalogModel, 'providerEntry' | 'rates'>, body: object): void {
  const { providerEntry, rates } = model;
  const { hasOnlyPlainChatTools, ownTools } = adapterOf(model);
  if (rates !== null) refusePricedTools(body);
  const takesChat = providerEntry.formats.includes('chat');
  if (takesChat && hasOnlyPlainChatTools !== true) return;
  const unsupportedTool = findUnsupportedTool(
    body,
    ({ type }) => type === undefined || type === 'function' || (takesChat && type === 'custom'),
  );
  if (unsupportedTool === undefined) return;
  const routes = [
    ...(providerEntry.formats.includes('responses') ? ['/v1/ai/responses'] : []),
    ...(providerEntry.formats.includes('messages') ? ['/v1/ai/messages'] : []),
    ...(ownTools === undefined ? [] : ['/v1/ai/stream']),
  ];
  const remedy = routes.length === 0 ? '' : ` The provider's own tools go by POST ${routes.join(' or ')}.`;
  throw unsupportedMember(
    unsupportedTool.path,
    `Chat completions of this model take no tools of the type ${unsupportedTool.type}.${remedy}`,
  );
}

/**
 * Throws a 422 for a provider tool that the model's provider does not have, or
 * whose use has no known price.
 */
export function checkProviderTools(
  model: Pick<CatalogModel, 'id' | 'providerEntry' | 'rates'>,
  tools: readonly { type: string; id?: string; args?: Record<string, unknown> }[] = [],
): void {
  const { ownTools } = adapterOf(model);
  for (const [index, { type, id: toolId = '', args }] of tools.entries()) {
    if (type !== 'provider') continue;
    const param = `tools[${index}].id`;
    if (ownTools === undefined || !toolId.startsWith(ownTools.prefix)) {
      throw unsupportedMember(param, `The model ${model.id} does not support the tool ${toolId}.`);
    }
    const isPriced = ownTools.isPriced(toolId.slice(ownTools.prefix.length), args);
    if (model.rates !== null && !isPriced) throw unpricedTool(toolId, param);
  }
}
