// Handlers of the catalog: models and providers in our own format, models in the formats of OpenAI's and
// Anthropic's clients, and the configuration that the AI SDK reads.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import type { Call, Reply } from '../../../kernel/contract/operation.ts';
import type { Identity } from '../../identity.ts';
import type { AiContext, AiHandlers } from '../calls/context.ts';
import { type Catalog, viewerOf } from '../catalog/catalog.ts';
import { toMessagesModel, toMessagesModelList, toModelEntry } from '../catalog/client-models.ts';
import { remoteProviders, toModelProvider } from '../catalog/provider-views.ts';
import { toSdkConfig } from '../catalog/sdk-config.ts';

type ModelOperation =
  | 'ai.listModels'
  | 'ai.getModel'
  | 'ai.listProviders'
  | 'ai.getConfig'
  | 'ai.listClientModels'
  | 'ai.getClientModel';

export function modelHandlers({
  catalog,
  backends,
}: Pick<AiContext, 'catalog' | 'backends'>): Pick<AiHandlers, ModelOperation> {
  return {
    'ai.listModels': async ({ identity }) => ({ status: 200, body: catalog.list(viewerOf(identity)) }),

    'ai.getModel': async ({ identity, path }) => ({
      status: 200,
      body: catalog.get(viewerOf(identity), path.model_id),
    }),

    'ai.listProviders': async () => ({
      status: 200,
      body: { items: remoteProviders(catalog.all()).map((entry) => toModelProvider(entry, backends)) },
    }),

    'ai.getConfig': async ({ identity, request }) => ({
      status: 200,
      headers: { vary: 'User-Agent' },
      body: toSdkConfig(catalog.callableModels(viewerOf(identity), 'stream'), request.headers['user-agent']),
    }),

    'ai.listClientModels': async (call) => listClientModels(catalog, call),

    'ai.getClientModel': async ({ identity, path, headers }) => {
      const model = catalog.find(viewerOf(identity), path.model_id);
      return {
        status: 200,
        headers: varyByVersion,
        body: isAnthropicClient(headers) ? toMessagesModel(model) : toModelEntry(model),
      };
    },
  };
}

const varyByVersion = { vary: 'anthropic-version' };

function isAnthropicClient(headers: { 'anthropic-version'?: string }): boolean {
  return headers['anthropic-version'] !== undefined;
}

function listClientModels(
  catalog: Catalog,
  { identity, query, headers }: Call<Operations['ai.listClientModels'], Identity>,
): Reply<Operations['ai.listClientModels']> {
  const models = catalog.visibleModels(viewerOf(identity));
  return {
    status: 200,
    headers: varyByVersion,
    body: isAnthropicClient(headers)
      ? toMessagesModelList(models, query)
      : { object: 'list', data: models.map(toModelEntry) },
  };
}
