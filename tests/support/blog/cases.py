"""Tests of the project in Django's own classes, which tests/integration/web/test_django_votes.py
runs by `test` on each database."""

from __future__ import annotations

import io
import tempfile
from typing import Any

import hotcount
import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.management import CommandError, call_command
from django.db import connection, models, transaction
from django.test import AsyncClient, TestCase, TransactionTestCase
from hotcount.integrations.django import models as votes_app

from tests.support.blog.models import Post, PostVote, Tag, TagStar


def users(n: int) -> list[User]:
    return [User.objects.create(username=f"user {i}") for i in range(n)]


def exact(post: Post) -> int:
    count: int = Post.objects.with_counts().get(pk=post.pk).exact_count
    assert count == Post.votes.count(post.pk)
    return count


class Votes(TransactionTestCase):
    def setUp(self) -> None:
        self.anna, self.ben, self.carl = users(3)
        self.first = Post.objects.create(title="first")
        self.second = Post.objects.create(title="second")

    def test_counts_and_votes_of_a_user_take_one_query(self) -> None:
        Post.votes.cast_many([self.first.pk] * 3, [self.anna.pk, self.ben.pk, self.carl.pk])
        Post.votes.cast(self.second.pk, self.ben.pk, -1)
        with self.assertNumQueries(1):
            rows = Post.objects.with_counts().voted_by(self.ben).order_by("pk")
            found = [(row.exact_count, row.user_vote) for row in rows]
        assert found == [(3, 1), (-1, -1)]
        with self.assertNumQueries(1):
            liked = Post.objects.voted_by(self.ben.pk).filter(user_vote__gt=0)
            assert [post.title for post in liked] == ["first"]
        for nobody in (None, AnonymousUser()):
            assert {row.user_vote for row in Post.objects.voted_by(nobody)} == {0}

    def test_the_orm_and_hotcount_count_alike(self) -> None:
        PostVote.objects.create(post=self.first, user=self.anna)
        Post.votes.cast(self.first.pk, self.ben.pk)
        assert exact(self.first) == 2
        vote = PostVote.objects.get(user=self.ben)
        vote.val = -1
        vote.save()
        assert exact(self.first) == 0
        PostVote.objects.filter(user=self.ben).delete()
        assert exact(self.first) == 1
        with transaction.atomic():
            PostVote.objects.create(post=self.first, user=self.carl)
            transaction.set_rollback(True)
        assert exact(self.first) == 1
        assert Post.votes.reconcile() == []

    def test_deleting_a_user_takes_out_the_votes_once(self) -> None:
        both = [self.first.pk, self.second.pk]
        Post.votes.cast_many(both * 2, [self.anna.pk] * 2 + [self.ben.pk] * 2)
        self.anna.delete()
        User.objects.filter(pk=self.carl.pk).delete()
        assert [exact(self.first), exact(self.second)] == [1, 1]
        assert Post.votes.reconcile(dry_run=True) == []

    def test_deleting_a_post_leaves_nothing_for_its_successor(self) -> None:
        Post.votes.cast_many([self.first.pk] * 2, [self.anna.pk, self.ben.pk])
        pk = self.first.pk
        self.first.delete()
        assert PostVote.objects.count() == 0
        again = Post.objects.create(pk=pk, title="again")
        assert exact(again) == 0
        assert Post.votes.reconcile(dry_run=True) == []

    def test_saving_an_old_object_leaves_the_count(self) -> None:
        old = Post.objects.get(pk=self.first.pk)
        Post.votes.cast_many([self.first.pk] * 2, [self.anna.pk, self.ben.pk])
        Post.votes.flush()
        old.title = "new"
        old.save()
        assert Post.objects.get(pk=old.pk).vote_count == 2
        assert exact(old) == 2
        copy = Post.objects.get(pk=old.pk)
        copy.pk = None
        copy.save()
        assert exact(copy) == 0

    def test_a_fixture_counts_once(self) -> None:
        Post.votes.cast_many([self.first.pk] * 2, [self.anna.pk, self.ben.pk])
        Post.votes.flush()
        with tempfile.TemporaryDirectory() as folder:
            dump = f"{folder}/dump.json"
            call_command("dumpdata", "blog", "auth.user", output=dump, verbosity=0)
            call_command("flush", interactive=False, verbosity=0)
            for _ in range(2):  # The second time over the rows of the first.
                call_command("loaddata", dump, verbosity=0)
                Post.votes.flush()
                assert exact(self.first) == Post.objects.get(pk=self.first.pk).vote_count == 2

    def test_items_without_a_column_of_counts(self) -> None:
        tag = Tag.objects.create(word="it's")
        stars = votes_app.votes_of(TagStar)
        assert stars.cast("it's", self.anna.username).counted
        TagStar.objects.create(tag=tag, by=self.ben)
        assert stars.count("it's") == 2
        for user, vote in ((self.anna, 1), (self.anna.username, 1), (self.carl, 0)):
            row = Tag.objects.with_counts().voted_by(user).get()
            assert (row.exact_count, row.user_vote) == (2, vote)
        self.anna.delete()
        assert stars.count("it's") == 1

    def test_a_missing_item_and_a_missing_user(self) -> None:
        for item, user, missing in ((10**6, self.anna.pk, "item"), (self.first.pk, 10**6, "user")):
            with self.subTest(missing), pytest.raises(hotcount.IntegrityError):
                Post.votes.cast(item, user)
        assert exact(self.first) == 0

    def test_commands(self) -> None:
        Post.votes.cast(self.first.pk, self.anna.pk)
        assert "blog.PostVote" in self.refused("hotcount_sync")
        assert "no vote model 'blog.post'" in self.refused("hotcount_sync", "blog.Post")
        if connection.vendor != "sqlite":  # There is nothing to fold there.
            call_command("hotcount_sync", "blog.PostVote", once=True, stdout=io.StringIO())
        assert Post.objects.get(pk=self.first.pk).vote_count == 1
        out = io.StringIO()
        call_command("hotcount_reconcile", "blog.postvote", dry_run=True, stdout=out)
        assert "2 items, 0 counts wrong" in out.getvalue()

    def refused(self, *command: str) -> str:
        with pytest.raises(CommandError) as caught:
            call_command(*command)
        return str(caught.value)

    def test_the_admin_shows_and_sorts_counts(self) -> None:
        User.objects.create_superuser("admin", password="secret")
        self.client.login(username="admin", password="secret")
        Post.votes.cast_many([self.second.pk] * 2, [self.anna.pk, self.ben.pk])
        Post.votes.flush()
        page = self.client.get("/admin/blog/post/?o=-2").content.decode()
        assert 'field-votes">2<' in page
        assert page.index("second") < page.index("first</a>")

    def test_a_like_button(self) -> None:
        self.client.force_login(self.anna)
        for liked in (True, False):
            answer = self.client.post(f"/like/{self.first.pk}").json()
            assert answer == {"liked": liked, "count": int(liked)}

    async def test_an_async_like_button(self) -> None:
        client = AsyncClient()
        await client.aforce_login(self.anna)
        for liked in (True, False):
            answer = (await client.post(f"/soon/{self.first.pk}")).json()
            assert answer == {"liked": liked, "count": int(liked)}


class IdsAgain(TransactionTestCase):
    """Rows of two tests have the same ids: `flush` has left no count behind."""

    reset_sequences = True

    def vote(self) -> None:
        (anna,) = users(1)
        post = Post.objects.create(pk=1, title="first")
        assert exact(post) == 0
        Post.votes.cast(1, anna.pk)
        Post.votes.cast(1, None, op_id="a form")
        assert exact(post) == 2

    test_once = test_twice = vote


class InATransaction(TestCase):
    def setUp(self) -> None:
        self.anna, self.ben = users(2)
        self.post = Post.objects.create(title="first")

    def test_votes_of_the_orm_count(self) -> None:
        PostVote.objects.create(post=self.post, user=self.anna)
        rows = Post.objects.with_counts().voted_by(self.anna)
        assert [(row.exact_count, row.user_vote) for row in rows] == [(1, 1)]
        self.anna.delete()
        assert Post.objects.with_counts().get().exact_count == 0

    def test_a_copy_of_the_test_database_is_whole(self) -> None:
        """What other apps write at the end of `migrate`, after hotcount has used the file."""
        assert Permission.objects.filter(codename="add_post").count() == 1

    def test_a_key_with_a_condition_is_refused(self) -> None:
        options: dict[str, Any] = {"condition": models.Q(val__gt=0)}
        with pytest.raises(TypeError, match="condition"):
            votes_app.OneVote(fields=["post", "user"], name="one", **options)

    def test_votes_of_hotcount_are_refused(self) -> None:
        refused: Any = transaction.TransactionManagementError
        for face in ("votes", "avotes"):
            with self.assertRaisesMessage(refused, "TransactionTestCase"):
                getattr(Post, face)
