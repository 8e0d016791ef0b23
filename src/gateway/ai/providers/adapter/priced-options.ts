// Rejects image and video options that change what the provider charges, since the catalog has only one rate
// for the model.
import { Problem } from '../../../../kernel/problem.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import { videoResolutions } from '../../catalog/rates.ts';
import { foldName } from '../../upstream/member-names.ts';

// Properties that providers bill in addition to the number of images and the seconds of video.
const pricedOptions = [
  'quality',
  'input_fidelity',
  'hd',
  'resolution',
  'megapixels',
  'width',
  'height',
  'image_size',
  'steps',
  'num_inference_steps',
  'num_images',
  'batch_size',
  'upscale',
  'upscale_factor',
  'mode',
  'tier',
  'service_tier',
  'priority',
  'generate_audio',
  'audio',
];

type PricedModel = Pick<CatalogModel, 'id' | 'rates' | 'covered_options'>;

/** Throws a 422 for an option that changes the price of a model and is not among its `covered_options`. */
export function refusePricedOptions(model: PricedModel, options: Readonly<Record<string, unknown>>): void {
  if (model.rates === null) return;
  const refusedNames = new Set(pricedOptions.map(foldName));
  for (const name of model.covered_options ?? []) refusedNames.delete(foldName(name));
  // The hold covers the highest of these rates, and the charge is for the generated resolution.
  if (videoResolutions.some((lines) => model.rates?.[`video_second_${lines}`] !== undefined))
    refusedNames.delete('resolution');
  refuseAmong(options, { model, refusedNames, path: 'provider_options' });
}

function refuseAmong(
  options: object,
  { model, refusedNames, path }: { model: PricedModel; refusedNames: ReadonlySet<string>; path: string },
): void {
  for (const [name, value] of Object.entries(options) as [string, unknown][]) {
    const param = `${path}.${name}`;
    const foldedName = foldName(name);
    if (value !== null && refusedNames.has(foldedName)) throw pricedOption(model.id, param);
    // Some servers merge the members of `extra_body` into the request.
    if (foldedName === 'extrabody' && typeof value === 'object' && value !== null)
      refuseAmong(value, { model, refusedNames, path: param });
  }
}

function pricedOption(modelId: string, param: string): Problem {
  return new Problem(
    'impossible',
    'unpriced_member',
    `The member ${param} is refused: it can change what the provider charges, and ${modelId} has one ` +
      'price. The operator may allow it in covered_options of the model.',
    { param },
  );
}
