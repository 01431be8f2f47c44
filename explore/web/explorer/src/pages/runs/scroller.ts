// Scrolling through rows whose total height exceeds the maximum height of an element.

/** In pixels. Browsers limit the height of elements, Firefox to 17 million pixels. */
const MAX_HEIGHT = 8_000_000;
const REST = 150;

/**
 * A scroll container whose content stays in view while its scrollbar moves. Above MAX_HEIGHT, the scrollbar covers the
 * rows at a smaller scale. Short steps, such as those of a wheel, move the rows by the same number of pixels. Long
 * steps go to the row at the scrollbar's place. After scrolling stops, the scrollbar moves to the place of the rows.
 */
export class Scroller {
  readonly element: HTMLElement;
  readonly #spacer: HTMLElement;
  readonly #onScroll: () => void;
  /** The first visible pixel of the rows. */
  #top = 0;
  #height = 0;
  #viewHeight = 0;
  #lastScrollTop = 0;
  #rest: ReturnType<typeof setTimeout> | undefined;

  /** `view` is as high as the container, and shows the rows from `top` on. */
  constructor(element: HTMLElement, view: HTMLElement, onScroll: () => void) {
    this.element = element;
    this.#onScroll = onScroll;
    this.#spacer = document.createElement("div");
    this.#spacer.className = "spacer";
    this.#spacer.setAttribute("role", "presentation");
    view.classList.add("view");
    this.element.append(this.#spacer);
    this.#spacer.append(view);
    element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
  }

  get top(): number {
    return this.#top;
  }

  /** The height of the container at the last measurement: reading it anew would make the browser lay out the page. */
  get viewHeight(): number {
    return this.#viewHeight;
  }

  measure(): void {
    this.#viewHeight = this.element.clientHeight;
  }

  /** Sets the height of all rows, and stays at the same pixel. */
  setHeight(height: number): void {
    this.#height = height;
    this.#spacer.style.height = `${Math.min(Math.max(height, 1), MAX_HEIGHT)}px`;
    this.scrollTo(this.#top);
  }

  scrollTo(top: number): void {
    this.#top = Math.min(Math.max(top, 0), this.#maxTop);
    this.#align();
    this.#onScroll();
  }

  get #maxTop(): number {
    return Math.max(this.#height - this.viewHeight, 0);
  }

  get #maxScrollTop(): number {
    return Math.max(Math.min(this.#height, MAX_HEIGHT) - this.viewHeight, 0);
  }

  #scrolled(): void {
    const { scrollTop } = this.element;
    const delta = scrollTop - this.#lastScrollTop;
    if (delta === 0) return;
    this.#lastScrollTop = scrollTop;
    const scaled = this.#height > MAX_HEIGHT;
    const atEnd = scrollTop <= 0 || scrollTop >= this.#maxScrollTop - 1;
    if (!scaled) this.#top = scrollTop;
    else if (Math.abs(delta) < 3 * this.viewHeight && !atEnd) this.#top += delta;
    else this.#top = this.#maxScrollTop === 0 ? 0 : (scrollTop / this.#maxScrollTop) * this.#maxTop;
    this.#top = Math.min(Math.max(this.#top, 0), this.#maxTop);
    this.#onScroll();
    if (!scaled) return;
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => this.#align(), REST);
  }

  /** Moves the scrollbar to the place of the rows, without moving the rows. */
  #align(): void {
    const scaled = this.#height > MAX_HEIGHT;
    const target = scaled && this.#maxTop > 0 ? (this.#top / this.#maxTop) * this.#maxScrollTop : this.#top;
    this.element.scrollTop = target;
    this.#lastScrollTop = this.element.scrollTop;
  }
}
