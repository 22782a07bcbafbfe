"""Votes of your own models.

docs/how-to/django-votes.md shows the way from an empty project to a like button.

Example::

    class Post(VotedMixin, models.Model):
        title = models.CharField(max_length=200)

    class PostVote(VoteMixin, models.Model):
        post = models.ForeignKey(Post, on_delete=models.CASCADE)
        user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)

        class Meta:
            constraints = [OneVote(fields=["post", "user"], name="one_vote_per_post")]

    Post.votes.cast(post.pk, user=request.user.pk)
    Post.objects.with_counts().voted_by(request.user)
"""

from __future__ import annotations

from typing import Any, cast

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models import F, Func, OuterRef, Subquery, Value
from django.db.models.functions import Coalesce

import hotcount
from hotcount import aio
from hotcount.integrations.django._schema import OneVote, VoteCountField, vote_model_of
from hotcount.integrations.django._votes import close_votes, database_url, votes_of

__all__ = [
    "OneVote",
    "VoteCountField",
    "VoteMixin",
    "VotedManager",
    "VotedMixin",
    "VotedQuerySet",
    "close_votes",
    "database_url",
    "votes_of",
    "with_counts",
]


if not apps.is_installed("hotcount.integrations.django"):
    raise ImproperlyConfigured(
        'INSTALLED_APPS lacks "hotcount.integrations.django", without which `migrate` makes no '
        "triggers and no views for votes"
    )


class _CountOf(Func):
    """The exact count of an item, from the view that hotcount keeps beside the vote table."""

    template = "(SELECT hotcount_view.n FROM %(view)s hotcount_view WHERE hotcount_view.item = %(expressions)s)"  # noqa: E501

    def __init__(self, vote_model: Any, key: str) -> None:
        super().__init__(F(key), output_field=models.BigIntegerField())
        self._table = vote_model._meta.db_table

    def as_sql(self, compiler: Any, connection: Any, **more: Any) -> Any:
        view = connection.ops.quote_name(f"{self._table}_count")
        return super().as_sql(compiler, connection, view=view, **more)


def with_counts(queryset: Any) -> Any:
    """VotedQuerySet.with_counts(), for any queryset of a model that is voted for."""
    vote_model, constraint = vote_model_of(queryset.model)
    item = vote_model._meta.get_field(constraint.item)
    return queryset.annotate(exact_count=_CountOf(vote_model, item.target_field.name))


class VotedQuerySet(models.QuerySet):
    """Counts and one user's votes as annotations: each in the query of the rows themselves."""

    def with_counts(self) -> VotedQuerySet:
        """Annotates `exact_count`: the item's count as of this query.

        On PostgreSQL, MariaDB and MySQL the column `vote_count` follows the votes after the fold
        interval (1 s), and writes of the ORM within 6 s; `exact_count` adds the waiting votes.
        Order large tables by `vote_count`, for which an index can be used: an order by
        `exact_count` computes it for every row.
        """
        return cast(VotedQuerySet, with_counts(self))

    def voted_by(self, user: Any) -> VotedQuerySet:
        """Annotates `user_vote`: the user's vote for each item, 0 for none.

        Args:
            user: A user, an id of one, None or Django's AnonymousUser, who has no votes.
        """
        key = getattr(user, "pk", user)
        if key is None:
            no_vote = Value(0, output_field=models.BigIntegerField())
            return cast(VotedQuerySet, self.annotate(user_vote=no_vote))
        vote_model, constraint = vote_model_of(self.model)
        item = vote_model._meta.get_field(constraint.item)
        user_field = vote_model._meta.get_field(constraint.user)
        if isinstance(user, models.Model):
            key = getattr(user, user_field.target_field.attname)
        votes = vote_model._base_manager.filter(
            **{item.attname: OuterRef(item.target_field.name), user_field.attname: key}
        )
        found = Subquery(votes.values("val")[:1])
        vote = Coalesce(found, 0, output_field=models.BigIntegerField())
        return cast(VotedQuerySet, self.annotate(user_vote=vote))


VotedManager = models.Manager.from_queryset(VotedQuerySet, "VotedManager")


class _Votes:
    """Post.votes and Post.avotes."""

    def __init__(self, face: type[hotcount.Votes] | type[aio.Votes]) -> None:
        self._face = face

    def __set_name__(self, owner: Any, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is not None:
            raise AttributeError(
                f"{self._name} belongs to the class: {owner.__name__}.{self._name}.cast("
                "post.pk, user=user.pk)"
            )
        return votes_of(owner, face=self._face)


class VotedMixin(models.Model):
    """A model whose rows are voted for. Another model holds the votes: see VoteMixin.

    `vote_count` is written by hotcount alone: save() leaves it as it is in the database, a new row
    begins at 0, and dumpdata leaves it out. `Post.votes` is a hotcount.Votes of this process and of
    the database that the router names for writes; `Post.avotes` has the same methods to be awaited.
    A manager of your own is made by `models.Manager.from_queryset(VotedQuerySet)`, or by a subclass
    of VotedManager.
    """

    vote_count = VoteCountField()

    objects = VotedManager()
    votes = _Votes(hotcount.Votes)
    avotes = _Votes(aio.Votes)

    class Meta:
        abstract = True

    def _do_update(self, base_qs: Any, using: Any, pk: Any, values: Any, *more: Any) -> Any:
        # For a fixture, whose posts have no count, Django would write the default of the field.
        kept = [each for each in values if not isinstance(each[0], VoteCountField)]
        return super()._do_update(base_qs, using, pk, kept, *more)


class VoteMixin(models.Model):
    """A model whose rows are votes: a foreign key to the item, one to the user, and OneVote.

    `val` is the vote, 0 if it was retracted: `filter(val__gt=0)` finds the likes, and
    `update_or_create(post=post, user=user, defaults={"val": 1})` likes again. Rows that
    the ORM writes and deletes count like votes of Post.votes, in the ORM's own transaction, because
    hotcount's triggers see them. `prev` and `version` are written by hotcount.
    """

    val = models.BigIntegerField(default=1, db_default=1)
    prev = models.BigIntegerField(default=0, db_default=0, editable=False)
    version = models.BigIntegerField(null=True, editable=False)

    class Meta:
        abstract = True
