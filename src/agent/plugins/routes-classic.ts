// The plugin routes of the classic variant: members `pluginName` and `actionName`;
// listPlugins returns summaries.
import type { Operations } from '../../contract/agent-classic/operations.gen.ts';
import type { Handlers } from '../../kernel/contract/operation.ts';
import type { Identity } from '../identity.ts';
import type { PluginCore } from './core.ts';

export function classicRoutes(core: PluginCore): Handlers<Operations, 'plugins', Identity> {
  return {
    'plugins.listPlugins': async () => ({
      status: 200,
      body: { success: true, plugins: await core.summaries() },
    }),
    'plugins.checkAvailability': async ({ body: { pluginName } }) => ({
      status: 200,
      body: { success: true, pluginName, availability: await core.availability(pluginName) },
    }),
    'plugins.callAction': async ({
      body: { pluginName, actionName, payload = {} },
      requestId,
      signal,
      log,
    }) => {
      const result = await core.call({
        plugin: pluginName,
        action: actionName,
        payload,
        caller: 'api',
        callId: requestId,
        signal,
        log,
      });
      return { status: 200, body: { success: true, pluginName, actionName, result } };
    },
  };
}
