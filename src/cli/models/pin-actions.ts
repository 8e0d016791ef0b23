// `townhall models pin` and `unpin`: keep updates from changing an entry.
import { pinEntry, unpinEntry, type Pin } from '../../gateway/ai/index.ts';
import { action, type Action } from '../command-line/command.ts';
import { catalogOptions, openCatalogStore } from './catalog-store.ts';

export const pinAction: Action = action({
  path: 'pin',
  summary: 'Keeps updates from changing a model; with --price, only from changing its price.',
  arguments: { model: { placeholder: 'MODEL' } },
  options: { price: { kind: 'switch', summary: 'Pin the price only.' }, ...catalogOptions },
  async run({ arguments: { model }, options: { price, json, ...flags }, ...context }) {
    const store = await openCatalogStore(flags, context);
    const { builtIn, current } = store;
    const models = [...builtIn.models, ...(current?.models ?? [])];
    if (!models.some(({ id }) => id === model))
      throw new Error(`The catalog has no model ${model}; a model of your MODELS_FILE needs no pin.`);
    const pin: Pin = { id: model, member: price ? 'price' : 'model' };
    await store.amend(pinEntry({ builtIn, current }, pin));
    context.print(json ? JSON.stringify(pin) : `Pinned: ${pin.member} ${model}`);
    return 0;
  },
});

export const unpinAction: Action = action({
  path: 'unpin',
  summary: 'Lets the next update change the model again.',
  arguments: { model: { placeholder: 'MODEL' } },
  options: catalogOptions,
  async run({ arguments: { model }, options: { json, ...flags }, ...context }) {
    const store = await openCatalogStore(flags, context);
    const { current } = store;
    if (current === undefined || !(current.pins ?? []).some(({ id }) => id === model))
      throw new Error(`${model} is not pinned.`);
    await store.amend(unpinEntry(current, model));
    context.print(json ? JSON.stringify({ id: model }) : `Unpinned: ${model}`);
    return 0;
  },
});
