// The pages that a person's browser sees at the end of a redirect login. They hold no script, load nothing, and
// can be put into no frame; whatever comes from elsewhere is escaped.
import { escapeHtml, renderHtml, type HtmlReply } from '../../../kernel/http/html.ts';

export { pageHeaders } from '../../../kernel/http/html.ts';

/** What a page says. `form` asks the person to decide. */
export interface Page {
  title: string;
  paragraphs: readonly string[];
  form?: { confirmation: string; userCode: string };
}

export type PageReply = HtmlReply;

export function renderPage({ title, paragraphs, form }: Page): PageReply {
  const body = [
    ...paragraphs.map((text) => `<p>${escapeHtml(text)}</p>`),
    ...(form ? [renderForm(form)] : []),
  ].join('\n');
  return renderHtml({ title, body });
}

// The address is relative to the callback's, so that it holds whatever path the server stands under.
function renderForm({ confirmation, userCode }: { confirmation: string; userCode: string }): string {
  return `<p class="code">${escapeHtml(userCode)}</p>
<form method="post" action="confirm">
<input type="hidden" name="confirmation" value="${escapeHtml(confirmation)}">
<button class="yes" name="decision" value="confirm">Yes, the codes are the same</button>
<button name="decision" value="cancel">No</button>
</form>`;
}
