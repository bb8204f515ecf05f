"""The options of a batch: what is wanted of some pages, and how they are to be requested."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from shoal.config.load import Settings
from shoal.extract.template import Template
from shoal.extract.template.content import Content, page_template, with_content
from shoal.queue.base import Queue
from shoal.web.api.models import RequestBody
from shoal.web.http.fields import NonEmptyLine, refuse_render
from shoal.web.http.problem import Problem
from shoal.web.submit.inline_templates import store_template
from shoal.web.submit.template_run import override_settings, settings_in, stored_template


class BatchOptions(RequestBody):
    template: NonEmptyLine | None = Field(default=None, description="The name of a template stored in the queue.")
    fields: dict[NonEmptyLine, Annotated[str, StringConstraints(max_length=2_000)]] | None = Field(
        default=None, max_length=100, description='Fields of each record: {"price:number": ".price"}.'
    )
    content: Content | None = Field(
        default=None,
        description="What `content` holds of a page: its readable text (default, unless there is a template"
        " or fields), its HTML, or none.",
    )
    headers: dict[NonEmptyLine, NonEmptyLine] | None = Field(
        default=None, max_length=50, description="Headers of every request; secrets are refused."
    )
    timeout: float | None = Field(default=None, gt=0, le=3600, description="Seconds for one request.")
    retries: int | None = Field(default=None, ge=0, le=100)
    retry_delay: float | None = Field(
        default=None, ge=0, le=86_400, description="Seconds before the first retry; doubled each time."
    )
    priority: int = Field(
        default=0, ge=-1_000_000, le=1_000_000, description="Runs of higher priority come first on hosts they share."
    )
    rate: float | None = Field(default=None, gt=0, le=10_000, description="Requests per second and host.")
    delay: float | None = Field(default=None, ge=0, le=86_400, description="Seconds between two requests to a host.")
    user_agent: NonEmptyLine | None = None
    cache: NonEmptyLine | None = Field(
        default=None, description='Use responses that the fleet fetched so recently ("60s", "1d"), or "http".'
    )
    ignore_robots: bool | None = None
    routes: list[NonEmptyLine] | None = Field(
        default=None, max_length=200, description='Rules by host or URL: "*/urgent/* priority=10 ttl=30m".'
    )
    render: Literal["none", "browser"] = "none"


async def batch_template(
    queue: Queue, own: Settings, options: BatchOptions
) -> tuple[Template, tuple[str, int], str, Settings]:
    """The template, where the queue keeps it, the field that has the content, and the settings of the run."""
    refuse_render(options.render)
    settings = override_settings(own, settings_in(options), "options")
    if options.template and options.fields:
        raise Problem(422, "validation-error", "options: give a template or fields, not both")
    if options.template:
        template, template_ref = await stored_template(queue, options.template)
        whole, content = with_content(template, options.content or "none")
        if whole is not template and whole != template:
            template_ref = await store_template(queue, whole)
        return whole, template_ref, content, settings
    wanted: Content = options.content or ("none" if options.fields else "text")
    template, content = await asyncio.to_thread(page_template, "batch", options.fields or {}, wanted)
    return template, await store_template(queue, template), content, settings
