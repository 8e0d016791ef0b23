// Handlers of the catalog: the models, one of them, and the list as the AI SDK reads it.
import type { AiContext, AiHandlers } from './ai-context.ts';
import { viewerOf } from './catalog/catalog.ts';
import { sdkConfig } from './catalog/sdk-config.ts';

export function modelHandlers({
  catalog,
}: Pick<AiContext, 'catalog'>): Pick<AiHandlers, 'ai.listModels' | 'ai.getModel' | 'ai.getConfig'> {
  return {
    'ai.listModels': async ({ identity }) => ({ status: 200, body: catalog.list(viewerOf(identity)) }),

    'ai.getModel': async ({ identity, path }) => ({
      status: 200,
      body: catalog.get(viewerOf(identity), path.model_id),
    }),

    'ai.getConfig': async ({ identity, request }) => ({
      status: 200,
      headers: { vary: 'User-Agent' },
      body: sdkConfig(catalog.callableModels(viewerOf(identity), 'stream'), request.headers['user-agent']),
    }),
  };
}
