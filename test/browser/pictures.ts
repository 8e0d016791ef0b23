// Screenshots of a page, for a reviewer to look at.
import { join } from 'node:path';
import type { Page } from 'playwright-core';

/** The widths of a desktop window and of a phone. */
const widths = [1280, 390];

/** Stores the page in both widths and color schemes; does nothing without a folder. */
export async function takePictures(page: Page, folder: string | undefined, name: string): Promise<void> {
  if (folder === undefined) return;
  for (const width of widths)
    for (const colorScheme of ['light', 'dark'] as const) {
      await page.setViewportSize({ width, height: 844 });
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: join(folder, `${name}-${width}-${colorScheme}.png`) });
    }
}
